"""Fine-tuning and inference on one GPU, checked and then timed, with the peers in the same process.

    python -m bench.gpu.tasks --data glue --tokenizer spiece.model  # all parts, albert-base
    python -m bench.gpu.tasks --data glue --tokenizer spiece.model --parts epoch --ways ours
    python -m bench.gpu.tasks --tiny  # the same code on a CPU, in seconds

One JSON line for each thing measured, as it comes; a part that fails says so in its line, and the
others go on.

check: the gradient of packed and of recorded batches against float64, beside that of padded ones;
the vectors likewise. epoch: one epoch of SST-2 from random weights, the clock around the whole run:
`seconds`; `per_step` is the mean step of the second half, when everything is compiled and recorded.
Ours is `litebert finetune`'s own run with its log, snapshots, an evaluation on dev (8 sentences)
and its checkpoint. Theirs is the Trainer with its defaults, bf16 and torch_compile; where
accelerate is missing, a loop that does what the Trainer does (`how` says which): random order,
padded to the longest of a batch, bf16 autocast over float32 weights, the model compiled, fused
AdamW, clipping at 1, linear decay, and the loss read every 500 steps. Token ids are made before the
clock starts, dropout is off in both encoders (ALBERT's own for SST-2) and 0.1 before the head.
`--most-steps` ends both early, and seconds are then scaled up by steps: said in the line. embed:
texts a second, from texts to vectors on the host, mean pooled. Theirs is sentence-transformers, or
where it is missing transformers with what it does: sorted by length, batches, padded to the
longest, mean over the mask, back in order. Both in bfloat16, theirs at its default batch of 32 and
at the best of a few.
"""

import argparse
import contextlib
import copy
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from bench.common.peers import huggingface_settings
from litebert.config import EncoderConfig, HeadConfig, ModelConfig, preset
from litebert.infer.predictor import Predictor
from litebert.infer.torch_engine import TorchEngine
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.recipes import FinetuneRecipe, OptimizerSpec
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.registry import open_task
from litebert.testing import tiny_task, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.prepare import Prepared, prepare
from litebert.train.finetune.run import Finetuning
from litebert.train.graphs import WARM
from litebert.train.loop import Event, StepDone
from litebert.train.runtime import Runtime

RATE, HEAD_DROPOUT = 1e-5, 0.1
PARTS = ("check", "epoch", "embed")
WAYS = ("ours", "ours-compiled", "theirs")
BATCHES = (32, 256, 1024)
"""Of sentence-transformers: its default, and larger ones."""
LOOK = 500
"""Steps between two looks at the loss, the Trainer's default."""


class Setting(SimpleNamespace):
    """Data, shapes and where all of it runs."""

    encoder: EncoderConfig
    tokenizer: Tokenizer
    prepared: Prepared
    recipe: FinetuneRecipe
    runtime: Runtime
    folder: Path
    texts: list[str]
    most_steps: int | None
    compile: bool

    @property
    def is_cuda(self) -> bool:
        return self.runtime.device.type == "cuda"

    def source(self) -> Checkpoint:
        torch.manual_seed(0)
        return Checkpoint(model=Model(ModelConfig(encoder=self.encoder)), tokenizer=self.tokenizer)

    def training(self, **changes: Any) -> Finetuning:
        return Finetuning(
            replace(self.recipe, **changes),
            self.prepared,
            self.source(),
            self.runtime,
            say=tell_stderr,
        )

    def steps(self) -> int:
        steps_per_epoch = -(-len(self.prepared.train.inputs) // self.recipe.batch_size)
        return min(steps_per_epoch, self.most_steps or steps_per_epoch)


def main() -> int:
    args = arguments()
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        setting = make_setting(args, Path(folder))
        say("about", **about(setting))
        failed = False
        for part in args.parts:
            for name, work in WORK[part](setting, args):
                try:
                    say(name, **work())
                except Exception as error:  # one part's end is not the others'
                    failed = True
                    say(name, failed=f"{type(error).__name__}: {str(error)[:500]}")
                if setting.is_cuda:
                    torch.cuda.empty_cache()
    return int(failed)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder of GLUE, or of SST-2")
    parser.add_argument("--tokenizer", help="ALBERT's spiece.model, or a folder with one")
    parser.add_argument("--preset", default="albert-base-v2")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["ours", "theirs"])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--most-steps", type=int, help="of the epoch; the time of a whole one is then scaled up"
    )
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="made data and a tiny model, for a CPU")
    args = parser.parse_args()
    if not args.tiny and not (args.data and args.tokenizer):
        parser.error("--data and --tokenizer say what to read; or --tiny")
    return args


def make_setting(args: argparse.Namespace, folder: Path) -> Setting:
    runtime = Runtime.start(device="cpu" if args.tiny else "auto")
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "pieces") if args.tiny else args.tokenizer)
    tokenizer.save(folder / "tokenizer")
    data = open_task(
        "sst2",
        tiny_task(folder / "sst2", "sst2") if args.tiny else args.data,
        splits=("train", "dev"),
    )
    data = replace(data, splits=dict(data.splits) | {"dev": data.splits["dev"][:8]})
    recipe = FinetuneRecipe(
        task="sst2",
        epochs=1,
        batch_size=args.batch_size,
        max_length=64 if args.tiny else 512,
        head_dropout=HEAD_DROPOUT,
        evaluations=1,
        retries=0,
        optimizer=OptimizerSpec(learning_rate=RATE, warmup=0),
    )
    encoder = preset("tiny" if args.tiny else args.preset)
    return Setting(
        encoder=replace(
            encoder, vocab_size=max(tokenizer.vocab_size, 0 if args.tiny else encoder.vocab_size)
        ),
        tokenizer=tokenizer,
        prepared=prepare(recipe, data, tokenizer),
        recipe=recipe,
        runtime=runtime,
        folder=folder,
        texts=mixed(
            [example.first for example in data.splits["train"]], 40 if args.tiny else args.texts
        ),
        most_steps=3 if args.tiny else args.most_steps,
        compile=not args.tiny,
    )


def mixed(sentences: list[str], count: int) -> list[str]:
    """Texts of one to twenty sentences, most of them short: lengths as in a mixed collection."""
    draw = random.Random(0)
    sizes = [min(20, 1 + int(draw.lognormvariate(0.5, 0.9))) for _ in range(count)]
    return [" ".join(draw.choices(sentences, k=size)) for size in sizes]


def about(setting: Setting) -> dict[str, Any]:
    lengths = setting.prepared.train.inputs.row_lengths
    return {
        "device": torch.cuda.get_device_name() if setting.is_cuda else "cpu",
        "dtype": str(setting.runtime.dtype),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": find_spec("accelerate") is not None,
        "sentence_transformers": find_spec("sentence_transformers") is not None,
        "batch_size": setting.recipe.batch_size,
        "train_sentences": len(lengths),
        "tokens_of_a_sentence": round(float(np.mean(lengths)), 1),
    }


# check


def checks(
    setting: Setting, args: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    yield "check gradient", lambda: check_gradient(setting)
    yield "check vectors", lambda: check_vectors(setting)


def check_gradient(setting: Setting) -> dict[str, Any]:
    """Relative error of each way's gradient over some batches; packed and recorded may err 1.1
    times as much as padded."""
    training = setting.training(head_dropout=0.0, compile="auto")
    job, model = training.job, training.learner.working.model
    truth = copy.deepcopy(model).double()
    errors: dict[str, list[float]] = {"padded": [], "packed": [], "recorded": []}
    for step in range(min(12, job.steps)):
        batch = job.batch(step)
        counts = job.counts(batch)
        moved = DeviceBatch.of(batch.padded(), setting.runtime.device)
        exact = gradient(
            truth, lambda moved=moved, counts=counts: job.mean(job.compute(truth, moved), counts)
        )
        measured = {
            "padded": gradient(
                model,
                lambda moved=moved, counts=counts: job.mean(job.compute(model, moved), counts),
            ),
            "packed": gradient(
                model,
                lambda batch=batch, counts=counts: job.mean(
                    job.compute(model, DeviceBatch.of(job.layout(batch), setting.runtime.device)),
                    counts,
                ),
            ),
        }
        if training.graphs is not None:
            for _ in range(WARM + 1):
                model.zero_grad()
                training.graphs(batch, step, counts)
            measured["recorded"] = flat(model)
        for name, value in measured.items():
            errors[name].append(float((value - exact).norm() / exact.norm()))
    means = {name: statistics.mean(values) for name, values in errors.items() if values}
    recorded = 0 if training.graphs is None else len(training.graphs.recorded)
    ok = all(error <= 1.1 * means["padded"] + 1e-4 for error in means.values())
    return {
        "ok": ok and (not setting.is_cuda or recorded > 0),
        "relative_error": means,
        "graphs": recorded,
    }


def gradient(model: Model, loss: Callable[[], Tensor]) -> Tensor:
    model.zero_grad()
    loss().backward()  # type: ignore[no-untyped-call]
    return flat(model)


def flat(model: Model) -> Tensor:
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([each.double().flatten() for each in gradients])


def check_vectors(setting: Setting) -> dict[str, Any]:
    """Against float32 on the same device, and every text where it belongs."""
    texts = setting.texts[:200]
    exact = predictor(setting, dtype="float32").embed(texts)
    vectors = predictor(setting).embed(texts)
    one = np.linalg.norm(vectors - exact, axis=1) / np.linalg.norm(exact, axis=1)
    return {
        "ok": bool(one.max() < 0.05),
        "relative_error": {"mean": float(one.mean()), "most": float(one.max())},
    }


# epoch


def epochs(
    setting: Setting, args: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    figures: dict[str, dict[str, Any]] = {}

    def timed(way: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        figures[way] = work()
        return figures[way]

    if "ours" in args.ways:
        yield (
            "epoch ours",
            lambda: timed("ours", lambda: our_epoch(setting, "ours", compile="auto")),
        )
    if "ours-compiled" in args.ways:
        yield (
            "epoch ours-compiled",
            lambda: timed("ours-compiled", lambda: our_epoch(setting, "compiled", compile="on")),
        )
    if "theirs" in args.ways:
        yield "epoch theirs", lambda: timed("theirs", lambda: their_epoch(setting))
    for way in ("ours", "ours-compiled"):
        if way in figures and "theirs" in figures:
            yield f"ratio {way}", lambda way=way: ratio(figures["theirs"], figures[way])


def ratio(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """How many times as fast ours is."""
    return {unit: round(theirs[unit] / ours[unit], 2) for unit in ("seconds", "per_step")} | {
        "wanted": 3.0
    }


def timed(
    setting: Setting, stamps: list[float], seconds: float, steps: int, **more: Any
) -> dict[str, Any]:
    steps_per_epoch = -(-len(setting.prepared.train.inputs) // setting.recipe.batch_size)
    late = np.diff(
        stamps[len(stamps) // 2 :]
    )  # a host runs ahead of its device, so single steps say little
    per_step = float(np.mean(late)) if late.size else seconds / max(steps, 1)
    scaled = seconds if steps >= steps_per_epoch else seconds + (steps_per_epoch - steps) * per_step
    return {
        "seconds": round(scaled, 3),
        "per_step": round(per_step, 6),
        "steps": steps,
        "is_scaled": steps < steps_per_epoch,
        "first_step": round(stamps[0], 3) if stamps else None,
        **more,
    }


def our_epoch(setting: Setting, name: str, **changes: Any) -> dict[str, Any]:
    stop = {} if setting.most_steps is None else {"epochs": None, "steps": setting.steps()}
    began, stamps = time.perf_counter(), []
    training = setting.training(**changes, **stop)

    def stamp(event: Event) -> None:
        if isinstance(event, StepDone):
            stamps.append(time.perf_counter() - began)

    training.run.subscribers.append(stamp)
    training.train(setting.folder / f"run-{name}", progress=False)
    seconds = time.perf_counter() - began
    graphs = training.graphs
    return timed(
        setting,
        stamps,
        seconds,
        len(stamps),
        packed=training.job.pack,
        graphs=0 if graphs is None else len(graphs.recorded),
        shapes=0 if graphs is None else len(graphs.seen),
    )


def their_config(encoder: EncoderConfig) -> Any:
    return transformers.AlbertConfig(
        **huggingface_settings(encoder)
        | {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout_prob": HEAD_DROPOUT,
            "num_labels": 2,
        }
    )


def features(setting: Setting) -> list[dict[str, Any]]:
    inputs = setting.prepared.train.inputs
    batches = (inputs.batch(np.array([number])) for number in range(len(inputs)))
    return [
        {
            "input_ids": row.token_ids[0].tolist(),
            "attention_mask": [1] * row.token_ids.shape[1],
            "labels": int(row.targets[0]),
        }
        for row in batches
    ]


def vocabulary(setting: Setting) -> Any:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(setting.folder / "tokenizer" / "tokenizer.json"),
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=setting.encoder.max_positions,
    )


def their_epoch(setting: Setting) -> dict[str, Any]:
    """The Trainer, or what it does where it cannot be had."""
    rows, collate = features(setting), transformers.DataCollatorWithPadding(vocabulary(setting))
    torch.manual_seed(0)
    if find_spec("accelerate") is not None:
        return with_trainer(setting, rows, collate)
    return by_hand(setting, rows, collate)


def with_trainer(setting: Setting, rows: list[dict[str, Any]], collate: Any) -> dict[str, Any]:
    stamps: list[float] = []
    began = time.perf_counter()

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            stamps.append(time.perf_counter() - began)

    settings = transformers.TrainingArguments(
        output_dir=str(setting.folder / "trainer"),
        per_device_train_batch_size=setting.recipe.batch_size,
        num_train_epochs=1,
        max_steps=-1 if setting.most_steps is None else setting.steps(),
        learning_rate=RATE,
        bf16=setting.is_cuda,
        torch_compile=setting.compile,
        use_cpu=not setting.is_cuda,
        disable_tqdm=True,
        report_to="none",
    )
    model = transformers.AlbertForSequenceClassification(their_config(setting.encoder))
    trainer = transformers.Trainer(
        model=model, args=settings, train_dataset=rows, data_collator=collate, callbacks=[Clock()]
    )
    with contextlib.redirect_stdout(sys.stderr):  # it prints its own summary
        done = trainer.train()
    setting.runtime.synchronize()
    return timed(
        setting,
        stamps,
        time.perf_counter() - began,
        done.global_step,
        how="Trainer",
        compiled=setting.compile,
    )


def by_hand(setting: Setting, rows: list[dict[str, Any]], collate: Any) -> dict[str, Any]:
    device, steps = setting.runtime.device, setting.steps()
    stamps: list[float] = []
    began = time.perf_counter()
    model = (
        transformers.AlbertForSequenceClassification(their_config(setting.encoder))
        .to(device)
        .train()
    )
    call = torch.compile(model) if setting.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    size = setting.recipe.batch_size
    loader = torch.utils.data.DataLoader(
        rows, size, shuffle=True, collate_fn=collate, pin_memory=setting.is_cuda
    )  # type: ignore[arg-type]
    total = torch.zeros((), device=device)
    for step, batch in zip(range(steps), loader, strict=False):
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=setting.is_cuda):
            loss = call(**moved).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        total += loss.detach()
        if (step + 1) % LOOK == 0:
            total.item()
        stamps.append(time.perf_counter() - began)
    setting.runtime.synchronize()
    seconds = time.perf_counter() - began
    return timed(
        setting, stamps, seconds, steps, how="a loop as the Trainer's", compiled=setting.compile
    )


# embed


def embeddings(
    setting: Setting, args: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    speeds: dict[str, float] = {}

    def speed(name: str, make: Callable[[], Callable[[list[str]], Any]]) -> dict[str, Any]:
        embed = make()
        began = time.perf_counter()
        embed(setting.texts)  # compiles, and warms up
        first, times = time.perf_counter() - began, []
        for _ in range(args.rounds):
            began = time.perf_counter()
            vectors = embed(setting.texts)
            times.append(time.perf_counter() - began)
        assert len(vectors) == len(setting.texts)
        speeds[name] = len(setting.texts) / statistics.median(times)
        return {
            "texts_per_second": round(speeds[name]),
            "spread": [min(times), max(times)],
            "first_round": round(first, 3),
        }

    if "ours" in args.ways:
        yield "embed ours", lambda: speed("ours", lambda: predictor(setting).embed)
    if setting.compile and {"ours", "ours-compiled"} & set(args.ways):
        yield (
            "embed ours-compiled",
            lambda: speed("ours-compiled", lambda: predictor(setting, compile=True).embed),
        )
    if "theirs" in args.ways:
        way = (
            sentence_transformer if find_spec("sentence_transformers") else as_sentence_transformers
        )
        for size in BATCHES:
            name = f"{way.__name__} batch {size}"
            yield (
                f"embed {name}",
                lambda size=size, name=name: speed(name, lambda: way(setting, size)),
            )
    if any("batch" in name for name in speeds) and any("ours" in name for name in speeds):
        yield "ratio embed", lambda: embed_ratio(speeds)


def embed_ratio(speeds: dict[str, float]) -> dict[str, Any]:
    """Against their default, and against the best of theirs."""
    theirs = {name: speed for name, speed in speeds.items() if "batch" in name}
    default = next((speed for name, speed in theirs.items() if name.endswith(" 32")), None)
    mine = {name: speed for name, speed in speeds.items() if "ours" in name}
    return {
        name: {
            "to_their_best": round(speed / max(theirs.values()), 2),
            "to_their_default": None if default is None else round(speed / default, 2),
        }
        for name, speed in mine.items()
    } | {"wanted": 2.5}


def predictor(setting: Setting, **settings: Any) -> Predictor:
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=setting.encoder, heads=(HeadConfig(kind="masked"),)))
    return Predictor(
        TorchEngine(
            Checkpoint(model=model, tokenizer=setting.tokenizer),
            device=setting.runtime.device,
            **settings,
        )
    )


def their_encoder(setting: Setting) -> Any:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if setting.is_cuda else torch.float32
    return (
        transformers.AlbertModel(their_config(setting.encoder))
        .to(setting.runtime.device, dtype)
        .eval()
    )


def sentence_transformer(setting: Setting, size: int) -> Callable[[list[str]], Any]:
    import sentence_transformers as st

    folder = setting.folder / "theirs"
    their_encoder(setting).save_pretrained(folder)
    vocabulary(setting).save_pretrained(folder)
    model = st.SentenceTransformer(
        str(folder), device=str(setting.runtime.device)
    )  # adds mean pooling by itself
    model.max_seq_length = setting.encoder.max_positions
    model.to(setting.runtime.device, torch.bfloat16 if setting.is_cuda else torch.float32)
    return lambda texts: model.encode(texts, batch_size=size, show_progress_bar=False)


def as_sentence_transformers(setting: Setting, size: int) -> Callable[[list[str]], Any]:
    """What SentenceTransformer.encode does: longest texts first, each batch split into pieces,
    padded, moved, pooled."""
    model, pieces, device = their_encoder(setting), vocabulary(setting), setting.runtime.device

    @torch.inference_mode()
    def embed(texts: list[str]) -> np.ndarray:
        order = np.argsort([-len(text) for text in texts])
        pooled: list[Tensor] = []
        for start in range(0, len(texts), size):
            some = [texts[number] for number in order[start : start + size]]
            batch = pieces(some, padding=True, truncation=True, return_tensors="pt").to(device)
            states = model(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None].to(states.dtype)
            pooled.extend((states * mask).sum(1) / mask.sum(1).clamp(min=1e-9))
        vectors = torch.stack([pooled[number] for number in np.argsort(order).tolist()])
        return np.asarray(vectors.float().cpu().numpy())

    return embed


WORK = {"check": checks, "epoch": epochs, "embed": embeddings}


def say(what: str, **numbers: Any) -> None:
    print(json.dumps({"what": what} | numbers), flush=True)


def tell_stderr(message: str) -> None:
    print(message, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
