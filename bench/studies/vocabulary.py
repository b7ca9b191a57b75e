"""How many pieces serve a small model best: the same text, the same compute, vocabularies of
different sizes.

    python -m bench.studies.vocabulary --data CORPUS… --tokenizers DIR… --out DIR \\
        [--steps 300 500] [--seeds 0 1]

Documents of every file are drawn by a seed. Counted for each vocabulary: pieces per word,
parameters, and bytes of the int8 model with its tokenizer. Then the demo's model (three shared
layers of width 128, pre-norm, Muon) is pretrained with each, over sequences of as many words and
for equal compute, and asked for the same hidden words of the same held-out documents
(bench/studies/hidden_words.py). `--steps` are those of the first vocabulary. What compute means is
`--count`: FLOPs of this preset, layers and head, by model/count.py; "miniature" counts the small
model's own, of which a head of 30,000 pieces is half, where it is 1 % of albert-base's. Writes
vocabulary.json, run.json and table.md; a finished run is not run again.

A score is worth something only below the unigram column: there a model has begun to look around.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common.results import begin
from bench.common.tables import markdown
from bench.studies.hidden_words import HIDDEN, Scores, Window, hidden_words, make_windows, score
from litebert.config import EncoderConfig, HeadConfig, ModelConfig, preset
from litebert.data.build import build_shards
from litebert.data.chunks import find_files
from litebert.data.corpus import read_documents
from litebert.data.shards import Shards
from litebert.files import write_json
from litebert.model.count import count_encoder, count_head, flops_per_token
from litebert.model.model import Model
from litebert.recipes import NAMED, PretrainRecipe, Stages
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime

MOST_CHARACTERS = 100_000
"""Of one document: a book is no longer than a long article."""
HELDOUT = 0.1
BATCH = 32
WINDOW = 0.7
"""Words that are scored together, as part of those in a sequence: nearly all such windows fit into
one, whoever cuts them."""
SPECIALS = 3
"""[CLS] and twice [SEP]."""
HEADS = (HeadConfig(kind="masked"), HeadConfig(kind="order"))


def draw_text(data: list[str], folder: Path, *, megabytes: float, rng: np.random.Generator) -> None:
    """Whole documents of each file, in random order, until `megabytes`; a tenth of them is kept for
    scoring."""
    drawn: list[list[str]] = []
    for file in find_files(data):
        documents: list[list[str]] = []
        for document in read_documents([file.path]):
            if not document.joined or not documents:
                documents.append([])
            if sum(map(len, documents[-1])) < MOST_CHARACTERS:
                documents[-1] += document.paragraphs
        size = 0
        for number in rng.permutation(len(documents)):
            if size > megabytes * 1e6:
                break
            ends = np.cumsum([len(paragraph) for paragraph in documents[number]])
            drawn.append(documents[number][: max(1, int(np.searchsorted(ends, MOST_CHARACTERS)))])
            size += sum(map(len, drawn[-1]))
    heldout = rng.random(len(drawn)) < HELDOUT
    folder.mkdir(parents=True, exist_ok=True)
    for name, wanted in (("heldout", True), ("train", False)):
        chosen = [
            "\n".join(each) + "\n"
            for each, is_heldout in zip(drawn, heldout, strict=True)
            if is_heldout == wanted
        ]
        (folder / f"{name}.txt").write_text("\n".join(chosen), encoding="utf-8")


def read_texts(path: Path) -> list[str]:
    return [
        " ".join(document.split("\n"))
        for document in path.read_text(encoding="utf-8").split("\n\n")
    ]


def describe(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, Any]:
    """How a vocabulary cuts the texts, and what it makes of albert-base."""
    ids, _ = tokenizer.encode_flat(texts)
    words, characters = sum(len(text.split()) for text in texts), sum(map(len, texts))
    encoder = replace(preset("albert-base-v2"), vocab_size=tokenizer.vocab_size)
    counts = count_encoder(encoder)
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        model = Model(ModelConfig(encoder=encoder, heads=HEADS))
        Checkpoint(model=model, tokenizer=tokenizer).write(Path(folder), weights="int8")
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return {
        "vocab_size": tokenizer.vocab_size,
        "words": words,
        "pieces_per_word": len(ids) / words,
        "pieces_per_character": len(ids) / characters,
        "unknown_per_piece": float(np.mean(ids == tokenizer.unk_id)),
        "embedding_parameters": counts["embedding"],
        "parameters": sum(counts.values()) + sum(count_head(encoder, head) for head in HEADS),
        "int8_bytes": size,
    }


def unigram_nats(folder: Path, tokenizer: Tokenizer, windows: Sequence[Window]) -> float:
    """Of a hidden word, by how often its pieces stand in the training text: what a model knows that
    does not look around."""
    shards = Shards.open(folder)
    counts = np.ones(tokenizer.vocab_size)
    for number in range(len(shards)):
        counts += np.bincount(shards.arrays(number).tokens, minlength=tokenizer.vocab_size)
    nats = -np.log(counts / counts.sum())
    hidden = [word for window in windows for word in hidden_words(window)]
    return float(sum(nats[tokenizer.encode(word)].sum() for word in hidden) / len(hidden))


def sequence_flops(config: EncoderConfig, vocab_size: int, seq: int) -> float:
    """Of training on one sequence."""
    config = replace(config, vocab_size=vocab_size)
    return seq * flops_per_token(config, seq=seq, masked_fraction=0.15, training=True)


def recipe_of(seed: int, steps: int, seq: int) -> PretrainRecipe:
    """The demo's model, which leaves the entropy of single tokens within minutes; on masked tokens
    alone."""
    return replace(
        NAMED["demo"],
        seed=seed,
        steps=steps,
        tokens=None,
        batch_size=Stages.constant(BATCH),
        sequence_length=Stages.constant(seq),
        depth=None,
        order="none",
        heldout_fraction=0.0,
        evaluate_every=0,
        save_every=0,
    )


def trained(recipe: PretrainRecipe, data: Path, run: Path) -> Model:
    """The model of a run that is finished, or is run now."""
    if not (run / "final").exists():
        Pretraining(recipe, data, Runtime.start()).train(run, progress=False)
    return Checkpoint.load(run / "final").model


def summary(scores: Scores, characters: int) -> dict[str, float]:
    """Means over the hidden words, and per character of theirs."""
    total = float(scores.in_turn.mean()) + scores.count_entropy
    return {
        "nats_per_word_at_once": float(scores.at_once.mean()),
        "nats_per_word_in_turn": float(scores.in_turn.mean()),
        "count_entropy": scores.count_entropy,
        "nats_per_word": total,
        "nats_per_character": total * len(scores.in_turn) / characters,
        "words_right": float(scores.right.mean()),
    }


def differences(nats: dict[str, list[np.ndarray]]) -> dict[str, dict[str, float]]:
    """Each vocabulary against the first on the same windows, seeds averaged: nats per word more,
    and their standard error."""
    means = {name: np.mean(each, 0).reshape(-1, HIDDEN).mean(1) for name, each in nats.items()}
    first, *others = means
    apart = {name: means[name] - means[first] for name in others}
    return {
        name: {
            "nats_per_word": float(each.mean()),
            "standard_error": float(each.std(ddof=1) / len(each) ** 0.5),
        }
        for name, each in apart.items()
    }


def table(result: dict[str, Any]) -> str:
    """What a person reads."""
    columns = "pieces,per word,per character,embedding,parameters,int8 MB"
    sizes = [
        [
            f"{each['vocab_size']:,}",
            f"{each['pieces_per_word']:.3f}",
            f"{each['pieces_per_character']:.4f}",
            f"{each['embedding_parameters'] / 1e6:.2f} M",
            f"{each['parameters'] / 1e6:.2f} M",
            f"{each['int8_bytes'] / 1e6:.2f}",
        ]
        for each in result["vocabularies"].values()
    ]
    more = "pieces,seed,tokens in a sequence,steps,words read,nats per hidden word: unigram,at once"
    more += ",in turn,and the count of pieces,per character,words guessed"
    losses = ("nats_per_word_at_once", "nats_per_word_in_turn", "nats_per_word")
    runs = []
    for run in result["runs"]:
        vocabulary = result["vocabularies"][run["vocabulary"]]
        runs.append(
            [
                f"{vocabulary['vocab_size']:,}",
                run["seed"],
                run["sequence_length"],
                f"{run['steps']:,}",
                f"{run['words'] / 1e6:.2f} M",
                f"{vocabulary['unigram_nats_per_word']:.3f}",
                *(f"{run[loss]:.3f}" for loss in (*losses, "nats_per_character")),
                f"{run['words_right']:.1%}",
            ]
        )
    return markdown(columns.split(","), sizes) + "\n" + markdown(more.split(","), runs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True, help="corpus: files, folders or globs")
    parser.add_argument(
        "--tokenizers",
        nargs="+",
        type=Path,
        required=True,
        help="folders; others are held to the first",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for text, shards, runs and the results"
    )
    parser.add_argument("--megabytes", type=float, default=3.0, help="of text from each file")
    parser.add_argument("--words", type=int, default=14, help="words in a sequence, about")
    parser.add_argument(
        "--windows", type=int, default=4000, help="held-out windows that are scored"
    )
    parser.add_argument(
        "--steps",
        nargs="+",
        type=int,
        default=[600],
        help="of the first vocabulary; others get its compute",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument(
        "--count",
        default="albert-base-v2",
        help="whose FLOPs are equal: a preset's, or the miniature's",
    )
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(args.threads)
    begin(args.out, threads=args.threads)
    text, shards = args.out / "text", args.out / "shards"
    if not (text / "train.txt").exists():
        draw_text(args.data, text, megabytes=args.megabytes, rng=np.random.default_rng(0))
    tokenizers = {folder.name: Tokenizer.load(folder) for folder in args.tokenizers}
    vocabularies, plans = {}, {}
    counted = recipe_of(0, 1, 16).encoder if args.count == "miniature" else preset(args.count)
    for folder, (name, tokenizer) in zip(args.tokenizers, tokenizers.items(), strict=True):
        vocabularies[name] = described = describe(tokenizer, read_texts(text / "train.txt"))
        build_shards([text / "train.txt"], tokenizer=folder, out=shards / name)
        seq = (
            round(args.words * described["pieces_per_word"]) + SPECIALS
        )  # equal text in a sequence, equal compute in a run
        plans[name] = seq, sequence_flops(counted, tokenizer.vocab_size, seq)
    limits = [(tokenizer, plans[name][0] - SPECIALS) for name, tokenizer in tokenizers.items()]
    words, drawn = round(WINDOW * args.words / 2) * 2, np.random.default_rng(1)
    windows = make_windows(
        read_texts(text / "heldout.txt"), limits, words=words, count=args.windows, rng=drawn
    )
    for name, tokenizer in tokenizers.items():
        vocabularies[name]["unigram_nats_per_word"] = unigram_nats(
            shards / name, tokenizer, windows
        )
    first_flops = plans[args.tokenizers[0].name][1]
    characters = sum(len(word) for window in windows for word in hidden_words(window))
    result: dict[str, Any] = {
        "count": args.count,
        "words_in_a_sequence": args.words,
        "hidden_words": HIDDEN * len(windows),
    }
    result |= {
        "megabytes_from_each_file": args.megabytes,
        "batch_size": BATCH,
        "vocabularies": vocabularies,
    }
    result |= {"runs": [], "against_the_first": {}}
    nats: dict[int, dict[str, list[np.ndarray]]] = {
        steps: {name: [] for name in tokenizers} for steps in args.steps
    }
    for steps, seed, (name, (seq, flops)) in product(args.steps, args.seeds, plans.items()):
        recipe = recipe_of(seed, round(steps * first_flops / flops), seq)
        run = args.out / "runs" / f"{name}-{args.count}-{steps}-seed{seed}"
        scores = score(trained(recipe, shards / name, run), tokenizers[name], windows)
        nats[steps][name].append(scores.in_turn + scores.count_entropy)
        described = vocabularies[name]
        rows = recipe.total_steps * recipe.batch_size.values[0]
        result["runs"].append(
            {
                "vocabulary": name,
                "seed": seed,
                "steps": recipe.total_steps,
                "sequence_length": seq,
                "words": rows * (seq - SPECIALS) / described["pieces_per_word"],
                "flops_counted": rows * flops,
                "flops_of_the_miniature": rows
                * sequence_flops(recipe.encoder, described["vocab_size"], seq),
                **summary(scores, characters),
            }
        )
        print(json.dumps(result["runs"][-1]), flush=True)
        if len({len(each) for each in nats[steps].values()}) == 1:
            result["against_the_first"][str(steps)] = differences(nats[steps])
        write_json(args.out / "vocabulary.json", result)
        (args.out / "table.md").write_text(table(result), encoding="utf-8")


if __name__ == "__main__":
    main()
