"""One epoch over RTE's train split on the CPU, ours against the Hugging Face Trainer with its
defaults. Prints JSON.

    python -m bench.cpu.finetune --data glue --tokenizer spiece.model [--hidden-size 128] \\
        [--layers 6] [--threads 1] [--rounds 3] [--dtypes float32 bfloat16] [--pairs 320]

A vocabulary of 30,000, dropout 0.1, batches of 32 pairs, the same token ids in both, encoded before
the clock starts; both start from random weights of the same shape. --dtypes are contenders too:
bfloat16 gains where the processor has instructions for it. --pairs trains on fewer. Theirs is the
Trainer with its defaults: AdamW, SDPA, random order, padded to the longest of a batch by
DataCollatorWithPadding, a checkpoint at the end. Ours is the whole run, with its snapshots, its
evaluation on dev (8 pairs) and its checkpoint. Contenders take turns, round after round; the figure
is the median, by the process's CPU time, which a busy machine disturbs least, and by the clock. The
Trainer needs accelerate: pip install 'litebert[bench]'.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers

from bench.common.peers import huggingface_settings
from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns
from litebert.config import EncoderConfig, ModelConfig
from litebert.infer.cpu import has_bfloat16
from litebert.model.model import Model
from litebert.recipes import FinetuneRecipe, OptimizerSpec
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.registry import open_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.prepare import Prepared, prepare
from litebert.train.finetune.run import Finetuning
from litebert.train.runtime import Runtime

VOCAB, EMBEDDING = 30_000, 128
DROPOUT, RATE = 0.1, 1e-4
Run = Callable[[Path], dict[str, Any]]


def ours(prepared: Prepared, recipe: FinetuneRecipe, source: Checkpoint, dtype: str) -> Run:
    precision = getattr(torch, dtype)
    runtime = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=precision)

    def run(folder: Path) -> dict[str, Any]:
        training = Finetuning(recipe, prepared, source, runtime, say=lambda message: None)
        done = training.train(folder, progress=False)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses = [record["loss"] for record in map(json.loads, lines) if record["kind"] == "step"]
        return {"steps": done.steps, "tokens": done.tokens, "loss": statistics.mean(losses)}

    return run


def theirs(
    prepared: Prepared,
    recipe: FinetuneRecipe,
    encoder: EncoderConfig,
    tokenizer_folder: Path,
    dtype: str,
) -> Run:
    config = transformers.AlbertConfig(
        **huggingface_settings(encoder)
        | {
            "hidden_dropout_prob": DROPOUT,
            "attention_probs_dropout_prob": DROPOUT,
            "classifier_dropout_prob": DROPOUT,
            "num_labels": 2,
        }
    )
    inputs = prepared.train.inputs
    rows = [inputs.batch(np.array([number])) for number in range(len(inputs))]
    features = [
        {
            "input_ids": row.token_ids[0].tolist(),
            "token_type_ids": row.segment_ids[0].tolist(),
            "attention_mask": [1] * row.token_ids.shape[1],
            "labels": int(row.targets[0]),  # type: ignore[index]
        }
        for row in rows
    ]
    vocabulary = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_folder / "tokenizer.json"),
        pad_token="<pad>",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    collate = transformers.DataCollatorWithPadding(vocabulary)
    read = SimpleNamespace(tokens=0)

    def counted(chosen: list[dict[str, Any]]) -> Any:
        batch = collate(chosen)
        read.tokens += batch["input_ids"].numel()
        return batch

    def run(folder: Path) -> dict[str, Any]:
        read.tokens = 0
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=recipe.batch_size,
            num_train_epochs=1,
            learning_rate=RATE,
            use_cpu=True,
            bf16=dtype == "bfloat16",
            disable_tqdm=True,
            report_to="none",
        )
        model = transformers.AlbertForSequenceClassification(config)
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=features, data_collator=counted
        )
        with contextlib.redirect_stdout(sys.stderr):  # it prints its own summary
            done = trainer.train()
        return {"steps": done.global_step, "tokens": read.tokens, "loss": done.training_loss}

    return run


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder of GLUE, or of RTE")
    parser.add_argument(
        "--tokenizer", required=True, help="ALBERT's spiece.model, or a folder with one"
    )
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--pairs", type=int, help="of train; by default all")
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32"])
    add_out(parser)
    args = parser.parse_args()
    begin(args.out)
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    tokenizer = Tokenizer.load(args.tokenizer)
    data = open_task("rte", args.data, splits=("train", "dev"))
    few = {"train": data.splits["train"][: args.pairs], "dev": data.splits["dev"][:8]}
    data = replace(data, splits=few)
    recipe = FinetuneRecipe(
        task="rte",
        epochs=1,
        batch_size=args.batch_size,
        encoder_dropout=DROPOUT,
        head_dropout=DROPOUT,
        evaluations=1,
        retries=0,
        optimizer=OptimizerSpec(learning_rate=RATE, warmup=0),
    )
    prepared = prepare(recipe, data, tokenizer)
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocab_size=VOCAB,
        embedding_size=EMBEDDING,
        hidden_size=args.hidden_size,
        num_layers=args.layers,
        num_attention_heads=args.hidden_size // 32,
        ffn_size=4 * args.hidden_size,
    )
    source = Checkpoint(model=Model(ModelConfig(encoder=encoder)), tokenizer=tokenizer)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tokenizer.save(folder / "tokenizer")
        runs: dict[str, Run] = {}
        for dtype in args.dtypes:
            runs[f"litebert {dtype}"] = ours(prepared, recipe, source, dtype)
            runs[f"huggingface {dtype}"] = theirs(
                prepared, recipe, encoder, folder / "tokenizer", dtype
            )
        numbers = itertools.count()
        contenders = {
            name: lambda run=run: run(folder / str(next(numbers))) for name, run in runs.items()
        }
        times = in_turns(contenders, args.rounds, verbose=True)
    table = {
        name: {
            "cpu_seconds": round(each.cpu_seconds, 2),
            "seconds": round(each.seconds, 2),
            "steps": each.last["steps"],
            "padded_tokens": each.last["tokens"],
            "mean_loss": round(each.last["loss"], 3),
        }
        for name, each in times.items()
    }
    ratios = {
        dtype: {
            unit: round(table[f"litebert {dtype}"][unit] / table[f"huggingface {dtype}"][unit], 3)
            for unit in ("cpu_seconds", "seconds", "padded_tokens")
        }
        for dtype in args.dtypes
    }
    about = {
        "train_pairs": len(prepared.train.examples),
        "real_tokens": int(prepared.train.inputs.lengths.sum()),
        "hidden_size": args.hidden_size,
        "layers": args.layers,
        "batch_size": args.batch_size,
        "threads": args.threads,
        "bfloat16_instructions": has_bfloat16(),
        "rounds": args.rounds,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    publish(about | {"litebert / huggingface": ratios, "epochs": table}, args.out)
    return int(any(each["cpu_seconds"] > 0.5 for each in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
