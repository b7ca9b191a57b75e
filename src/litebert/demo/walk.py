"""The demo, station by station: text → vocabulary → shards → examples → pretraining → fine-tuning →
predictions → report. A folder in; the numbers of every station, each beside its baseline, out.

First the embedded model shows what a pretrained model can do. No station that learns sees held-out
speeches: not the vocabulary, not pretraining, not fine-tuning.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.padding import Padding

from litebert import __version__
from litebert.data import giveaway
from litebert.data.build import BuildOptions, build_shards
from litebert.data.corpus import CorpusOptions
from litebert.data.shards import Shards
from litebert.data.show import LEGEND, describe
from litebert.data.stream import Stream
from litebert.demo.baselines import (
    accuracy_of_token,
    bag_of_words,
    guess_words,
    majority_token,
    mask_words,
)
from litebert.demo.corpus import (
    TASK,
    Speech,
    fingerprint,
    make_task,
    number_speeches,
    read_speeches,
    sample_paragraphs,
    write_text,
)
from litebert.demo.folder import DemoFolder
from litebert.demo.show import Show, excerpt, filled_mask, filled_sentence
from litebert.files import write_folder
from litebert.infer.predictor import load
from litebert.models.index import default_model, embedded_models
from litebert.recipes import FinetuneRecipe, OptimizerSpec, PretrainRecipe, named
from litebert.report import write_report
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import TextExample
from litebert.tasks.heads.heads import predict
from litebert.tasks.predictions import LabelPrediction
from litebert.tasks.scores.baselines import majority
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard, TaskData
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import VocabularyConfig, train_tokenizer
from litebert.train.finetune.prepare import prepare
from litebert.train.finetune.run import Finetuning
from litebert.train.pretrain.evaluate import HeldoutScorer, filled_masks
from litebert.train.pretrain.run import Pretraining, example_spec
from litebert.train.runtime import Runtime

ORDER_MARGIN = 0.02
"""Accuracy above that of lengths and edges from which the order counts as learned."""
_NUM_SHOWN = 4
"""Filled masks to print."""
_NUM_SENTENCES = 60
"""Sentences in which the embedded model fills a masked word."""


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Sizes of the demo. A budget in tokens, not in time: the same numbers on every machine of a
    kind."""

    vocab_size: int = 2_000
    """Tokens in the vocabulary."""
    vocab_characters: int = 3_000_000
    """Characters of text that the vocabulary is learned from."""
    recipe: PretrainRecipe = field(default_factory=lambda: named("demo"))
    """How the encoder is pretrained."""
    finetune: FinetuneRecipe = field(
        default_factory=lambda: FinetuneRecipe(
            task=TASK,
            epochs=1,
            max_length=64,
            evaluations=4,
            patience=0,
            retries=0,
            optimizer=OptimizerSpec(learning_rate=1e-3, warmup=0.1),
            dtype="float32",
        )
    )
    """How the era is learned."""
    evaluate_tokens: int = 200_000
    """Held-out tokens that the final scores are taken on."""


def run_demo(
    out: Path | str,
    show: Show,
    *,
    corpus: Path | str | None = None,
    settings: DemoSettings | None = None,
) -> dict[str, Any]:
    """Run all stations; those that an earlier call finished in this folder are kept."""
    return Walk(DemoFolder(out), show, settings or DemoSettings()).run(corpus)


class Walk:
    def __init__(self, folder: DemoFolder, show: Show, settings: DemoSettings) -> None:
        self.folder, self.show, self.settings = folder, show, settings
        self.recipe = settings.recipe
        self.length = self.recipe.sequence_length.values[-1]
        # as in the last stage
        self.spec = replace(example_spec(self.recipe), max_length=self.length)
        threads = torch.get_num_threads()  # the same numbers everywhere
        self.runtime = Runtime.start(device="cpu", dtype="float32", threads=threads)
        self.facts: dict[str, Any] = {"litebert": __version__, "out": str(folder.path)}

    def run(self, corpus: Path | str | None) -> dict[str, Any]:
        speeches = self.text(corpus)
        self.embedded(speeches)
        tokenizer = self.vocabulary(speeches)
        self.shards(tokenizer)
        self.examples(tokenizer)
        pretrained = self.pretraining(tokenizer)
        self.finetuning(pretrained, self.data)
        self.predictions(self.data)
        self.report()
        return self.facts | {
            "seconds": self.show.seconds,
            "total_seconds": round(sum(self.show.seconds.values()), 2),
        }

    def text(self, corpus: Path | str | None) -> list[Speech]:
        with self.show.station("Text", "what there is to learn from"):
            speeches = number_speeches(read_speeches(corpus), self.recipe.heldout_fraction)
            self.data = make_task(speeches)
            identity = {
                "litebert": __version__,
                "corpus": fingerprint(speeches),
                "vocabulary": [self.settings.vocab_size, self.settings.vocab_characters],
                "recipe": self.recipe.to_dict(),
                "finetune": self.settings.finetune.to_dict(),
            }
            claim = self.folder.claim(json.loads(json.dumps(identity)))
            self.paths = write_text(speeches, self.folder.text)
            told = {
                "again": "holds this demo already: finished stations are kept",
                "over": "held another demo, which is replaced",
            }
            if claim in told:
                self.show.say(f"{self.folder.path} {told[claim]}", "yellow")
            years = [speech.year for speech in speeches]
            held = sum(speech.heldout for speech in speeches)
            characters = sum(len(speech.text) for speech in speeches)
            source = f"texts of {corpus}" if corpus else "messages of presidents to Congress"
            self.show.say(
                f"{len(speeches)} {source}, {min(years)} to {max(years)}, {characters / 1e6:.1f} "
                "million characters"
            )
            self.show.say(
                f"{len(speeches) - held} to learn from; {held}, spread over the years, held out to "
                "score on"
            )
            counts = {"speeches": len(speeches), "heldout": held, "characters": characters}
            self.facts["text"] = counts
        return speeches

    def embedded(self, speeches: list[Speech]) -> None:
        """What a pretrained model can do: the embedded one fills masked words."""
        if not embedded_models():
            return
        with self.show.station(
            "A pretrained model", "the one that comes with litebert reads the held-out messages"
        ):
            own = default_model("fill")
            model = load(own.folder, device="cpu", engine="torch")
            sentences = guess_words(mask_words(speeches, model, _NUM_SENTENCES), model)
            right = sum(each.is_right for each in sentences)
            parameters = sum(parameter.numel() for parameter in model.model.parameters())
            size = f"{parameters / 1e6:.1f} M parameters, {own.num_bytes / 1e6:.1f} MB"
            self.show.say(f"{own.name}: {size}; one word masked in each sentence:")
            for each in sentences[:: max(len(sentences) // _NUM_SHOWN, 1)][:_NUM_SHOWN]:
                self.show.say(filled_sentence(each.text, each.word, each.guesses))
            self.show.say(
                f"its first guess is the word itself in {right} of {len(sentences)} sentences"
                if sentences
                else "no held-out sentence has a suitable length"
            )
            counts = {"sentences": len(sentences), "right": right}
            self.facts["embedded"] = {"model": own.name} | counts

    def vocabulary(self, speeches: list[Speech]) -> Tokenizer:
        with self.show.station("Vocabulary", "frequent words whole, rare ones as several tokens"):
            if not self.folder.tokenizer.is_dir():
                texts = sample_paragraphs(speeches, self.settings.vocab_characters)
                config = VocabularyConfig(vocab_size=self.settings.vocab_size)
                write_folder(self.folder.tokenizer, train_tokenizer(texts, config)[0].save)
            tokenizer = Tokenizer.load(self.folder.tokenizer)
            shown = excerpt(next(speech for speech in speeches if speech.heldout).paragraphs[0], 90)
            self.show.say(f"{tokenizer.vocab_size:,} tokens, by SentencePiece; ▁ begins a word")
            self.show.say(" ".join(tokenizer.tokens[i] for i in tokenizer.encode(shown)), "dim")
            self.facts["vocabulary"] = {"tokens": tokenizer.vocab_size}
        return tokenizer

    def shards(self, tokenizer: Tokenizer) -> None:
        with self.show.station("Shards", "the text as numbers, on disk"):
            built = build_shards(
                [self.folder.text],
                tokenizer=self.folder.tokenizer,
                out=self.folder.shards,
                options=BuildOptions(corpus=CorpusOptions(documents="files")),
            )
            self.show.say(
                f"{built.tokens:,} tokens in {built.sentences:,} sentences of {built.documents} "
                "documents"
            )
            names = ("tokens", "sentences", "documents")
            self.facts["shards"] = {name: getattr(built, name) for name in names}

    def examples(self, tokenizer: Tokenizer) -> None:
        with self.show.station(
            "Examples",
            "words masked, and two segments perhaps swapped; computed when they are read",
        ):
            stream = Stream.open(self.folder.shards, self.spec, seed=self.recipe.seed)
            self.show.say(
                f"{stream.num_examples():,} examples of up to {self.length} tokens in an epoch; "
                "the first:"
            )
            (example,) = describe(
                stream.batch(0, 0, 1),
                tokenizer.tokens,
                mask_id=tokenizer.mask_id,
                order=self.recipe.order,
            )
            self.show.console.print(Padding(example.render(), (0, 0, 0, 3)))
            self.show.say(LEGEND, "dim")

    def pretraining(self, tokenizer: Tokenizer) -> Checkpoint:
        with self.show.station(
            "Pretraining",
            "a small ALBERT learns to fill in the words; the order of sentences takes longer runs",
        ):
            training = Pretraining(self.recipe, self.folder.shards, self.runtime)
            parameters = sum(parameter.numel() for parameter in training.learner.model.parameters())
            encoder = self.recipe.encoder
            self.show.say(
                f"{encoder.num_layers} layers with one set of weights, width "
                f"{encoder.hidden_size}: {parameters:,} parameters; "
                f"{training.job.steps:,} steps"
            )
            done = training.train(self.folder.pretrain)
            pretrained = Checkpoint.load(self.folder.pretrain / "final")
            scores = self.score(pretrained, tokenizer)
            tokens = {"parameters": parameters, "steps": done.steps, "tokens": done.tokens}
            self.facts["pretraining"] = tokens | {"train_seconds": round(done.seconds, 1)} | scores
        return pretrained

    def score(self, pretrained: Checkpoint, tokenizer: Tokenizer) -> dict[str, Any]:
        """Held-out scores of the pretrained model beside their baselines, and some filled masks."""
        stream = Stream.open(self.folder.shards, self.spec, seed=self.recipe.seed)
        evaluation = HeldoutScorer(stream, self.runtime, tokens=self.settings.evaluate_tokens)
        scores = evaluation(pretrained.model, length=self.length)
        read = evaluation.batches(self.recipe.order, self.length)
        batches = [batch for batch in read if batch is not None]
        majority_id = majority_token(Shards.open(self.folder.shards))
        baseline = accuracy_of_token(majority_id, batches)
        token = tokenizer.tokens[majority_id]
        measured = giveaway.accuracy(stream, limit=50_000)
        self.show.say(
            f"on held-out text, {scores['heldout_tokens']:,} tokens with "
            f"{evaluation.mask_fraction:.0%} masked:"
        )
        masked, order = scores["masked_accuracy"], scores["sop_accuracy"]
        self.show.scores(
            [
                ("masked tokens predicted", masked, [(f"majority token {token!r}", baseline)]),
                ("sentence order predicted", order, [("by lengths and edges alone", measured)]),
            ]
        )
        if order < measured + ORDER_MARGIN:
            self.show.say(
                "order not learned: models learn to fill in words first, and the order of segments "
                "only in far longer runs than this one of minutes",
                "dim",
            )
        self.show.say(f"{masked / baseline:.1f} times the accuracy of always predicting {token!r}")
        examples = filled_masks(pretrained.model, batches[0], tokenizer, count=64, top=3)
        lines = [line for each in examples if (line := filled_mask(each, "[MASK]"))]
        self.show.say("masked words whose neighbors are visible, and the three best guesses:")
        for line in lines[:_NUM_SHOWN]:
            self.show.say(line)
        return {
            "masked_accuracy": masked,
            "majority_token": {"token": token, "accuracy": baseline},
            "times_majority": masked / baseline,
            "masked_loss": scores["masked_loss"],
            "order_accuracy": order,
            "giveaway_accuracy": measured,
            "heldout_tokens": scores["heldout_tokens"],
        }

    def finetuning(self, pretrained: Checkpoint, data: TaskData) -> None:
        with self.show.station(
            "Fine-tuning", "the same encoder learns to tell when a paragraph was written"
        ):
            assert pretrained.tokenizer is not None
            tokenizer, task, test = pretrained.tokenizer, data.task, data.splits["test"]
            sizes = {name: len(examples) for name, examples in data.splits.items()}
            self.show.say(
                f"{len(task.labels)} eras; paragraphs: {sizes['train']:,} to learn from, "
                f"{sizes['dev']:,} to choose the best "
                f"weights, {sizes['test']:,} of the held-out messages to score on"
            )
            prepared = prepare(self.settings.finetune, data, tokenizer)
            Finetuning(self.settings.finetune, prepared, pretrained, self.runtime).train(
                self.folder.finetune
            )
            tuned = Checkpoint.load(self.folder.finetune / "final")
            assert tuned.task is not None
            card = TaskCard.from_dict(tuned.task)
            self.guesses = predict(tuned.model, card, test, tokenizer)
            accuracy = score(task, test, self.guesses)["accuracy"]
            guessed = majority(task, data.splits["train"], test)
            baselines = {
                "majority": score(task, test, guessed)["accuracy"],
                "bag_of_words": bag_of_words(
                    prepared.train.inputs,
                    encode(card, test, tokenizer),
                    vocab_size=tokenizer.vocab_size,
                    num_labels=len(task.labels),
                ),
            }
            names = ("majority baseline", "bag of words")
            shown = list(zip(names, baselines.values(), strict=True))
            self.show.scores([("era predicted", accuracy, shown)])
            facts = {"eras": list(task.labels), "paragraphs": sizes, "era_accuracy": accuracy}
            self.facts["finetuning"] = facts | baselines

    def predictions(self, data: TaskData) -> None:
        with self.show.station("Predictions", "held-out paragraphs, one from each era"):
            shown = []
            for era in data.task.labels:
                pairs = zip(data.splits["test"], self.guesses, strict=True)
                mine = [pair for pair in pairs if pair[0].truth() == era]
                if not mine:
                    continue
                paragraph, guess = mine[len(mine) // 2]
                assert isinstance(paragraph, TextExample)
                assert isinstance(guess, LabelPrediction)
                chance = guess.probabilities[guess.label]
                self.show.say(f"“{excerpt(paragraph.first)}”")
                is_right = guess.label == era
                verdict = "right" if is_right else f"wrong, {era} would be right"
                self.show.say(
                    f"   written {paragraph.slice}, guessed {guess.label} ({chance:.0%}): "
                    f"{verdict}",
                    "green" if is_right else "yellow",
                )
                said = {"guess": guess.label, "probability": chance}
                shown.append({"year": int(paragraph.slice)} | said)
            self.facts["predictions"] = shown

    def report(self) -> None:
        with self.show.station(
            "Report", "curves, settings and filled masks; opens in a browser, offline"
        ):
            for run in (self.folder.pretrain, self.folder.finetune):
                self.show.say(str(write_report([run]).path))
            self.facts["report"] = str(self.folder.pretrain / "report.html")
