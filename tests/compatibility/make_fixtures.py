"""Write the fixtures of test_old_files.py. Run with the package of commit 15a5f4d, in an empty
folder:

    git worktree add /tmp/old 15a5f4d
    PYTHONPATH=/tmp/old/src python make_fixtures.py fixtures

The files are those of version 0.1.0 and are never made again; this program says how they came
about.
"""

# ruff: noqa: I001 — it imports modules of that commit
import io
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import sentencepiece
import torch

CORPUS, TABLE = "corpus.txt", "classify.csv"
TEXTS = [
    "the sailor follows the cold wave .",
    "then the baker pays a narrow door .",
    "finally the eagle circles the thin cloud . first the goat feeds the old barn .",
]
SHAPE = {
    "norm": "pre",
    "embedding_size": 8,
    "hidden_size": 16,
    "num_layers": 2,
    "num_attention_heads": 2,
    "ffn_size": 32,
    "max_positions": 32,
    "ffn_dropout": 0.1,
    "attention_dropout": 0.1,
}
PRETRAIN = f"""
    --data shards --encoder {" ".join(f"{name}={value}" for name, value in SHAPE.items())}
    --preset albert-base-v2 --recipe affordable --steps 12 --batch-size 0:6,4:8 --order sop
    --seed 3 --device cpu --sequence-length 0:16,6:24,9:16 --depth 0:1,7:2 --microbatch-tokens 64
    --rate 5e-3
    --heldout-fraction 0.1 --evaluate-every 5 --save-every 4 --workers 0
""".split()
FINETUNE = f"""
    classify --model pretrained --data {TABLE} --steps 24 --batch-size 8 --max-length 32 --rate 2e-2
    --encoder-dropout 0.1 --head-dropout 0.1 --evaluations 4 --patience 0 --retries 0 --save-every 4
    --seed 3 --microbatch-tokens 96 --dev-fraction 0.3 --device cpu
""".split()
DROPPED = ("pid", "time", "platform")
"""Of the machine that made them."""


def main(folder: Path) -> None:
    from litebert.checkpoint import Checkpoint, Difference

    from litebert.infer.load import load
    from litebert.testing import tiny_corpus, tiny_task

    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    os.chdir(folder)
    tiny_corpus(Path(CORPUS), documents=40)
    tiny_task(Path(), "classify")
    make_tokenizer(Path("tokenizer"))
    run("data", "build", CORPUS, "--tokenizer", "tokenizer", "--out", "shards", "--split", "lines")
    run("pretrain", *PRETRAIN, "--out", "pretrained")
    run("pretrain", *PRETRAIN, "--out", "pretraining", stop_after=7)
    run("finetune", *FINETUNE, "--out", "finetuned")
    run("finetune", *FINETUNE, "--out", "finetuning", stop_after=15)
    Checkpoint.load("pretrained/final").save("int8", weights="int8")
    # a difference is read together with its base, which is named by its folder
    difference = Difference(base="int8", rank=2, token_rank=1)
    Checkpoint.load("finetuned/final").save("difference", weights=difference)
    expected: dict[str, Any] = {
        "texts": TEXTS,
        "embed": {name: load(name).embed(TEXTS).tolist() for name in ("pretrained/final", "int8")},
        "classify": {
            name: [dict(each.probabilities) for each in load(name).classify(TEXTS)]
            for name in ("finetuned/final", "difference")
        },
        "pretrain": PRETRAIN,
        "finetune": FINETUNE,
    }
    Path("expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    for path in Path().rglob("*.json"):
        if path.name in ("status.json", "environment.json"):
            record = json.loads(path.read_text())
            kept = {name: value for name, value in record.items() if name not in DROPPED}
            path.write_text(json.dumps(kept, indent=2) + "\n")
    for path in Path().rglob(".lock"):
        path.unlink()
    for run_folder in ("pretrained", "finetuned", "pretraining", "finetuning"):
        for old in sorted(Path(run_folder).glob("snapshots/*"))[:-1]:
            shutil.rmtree(old)
    for path in Path().rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def make_tokenizer(folder: Path) -> None:
    """A vocabulary whose model stores no table of Unicode's rules, which would weigh 240 kB."""
    from litebert.text.tokenizer import Tokenizer

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(Path(CORPUS).read_text().split("\n")),
        model_writer=model,
        vocab_size=96,
        model_type="unigram",
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        num_threads=1,
        minloglevel=2,
    )
    Tokenizer(model.getvalue()).save(folder)


def run(*args: str, stop_after: int | None = None) -> None:
    """`litebert …` in this process; with `stop_after` it gets a SIGTERM after so many optimizer
    steps."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from litebert.cli import run as command

    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)

    hook = register_optimizer_step_post_hook(count)
    code = command(list(args))
    hook.remove()
    assert code == (75 if stop_after else 0), (args, code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
