"""Torture of files that are loaded: flipped bits in shards and checkpoints, hostile values in a
model's config and in the header of its weights. Prints one JSON object.

The law for flips: refused with an error of litebert's own, or what is read equals the original (a
bit in a file that does not matter). For hostile values, with verification off: an error of
litebert's own, or a model, within a second of processor time. Exit code 1 if any trial broke it.

    python -m torture.damage  # 100 flips in shards, 50 in checkpoints, 2,000 configs, 2,000 headers
    python -m torture.damage --shards 10 --checkpoints 10 --configs 50 --headers 50
"""

import argparse
import copy
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.common import results as results_file
from litebert.convert.folder import convert_folder
from litebert.data.build import build_shards
from litebert.data.shards import Shards
from litebert.errors import LitebertError
from litebert.loading import load_checkpoint
from litebert.testing import tiny_corpus, tiny_tokenizer
from tests.helpers.models import save_model

MOST_SECONDS = 1.0
HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    1e308,
    float("nan"),
    "",
    "x" * 100_000,
    "../../etc/passwd",
    "\x00",
    "\ud800",
    [],
    [[]] * 1000,
    {},
    {"": None},
]


def outcome(read: Callable[[], Any], same: Callable[[Any], bool]) -> str:
    """What became of reading damaged files."""
    begin = time.process_time()
    try:
        result = "read" if same(read()) else "BROKEN: read as something else"
    except LitebertError:
        result = "refused"
    except Exception as error:
        result = f"BROKEN: {type(error).__name__}: {error}"[:200]
    if time.process_time() - begin > MOST_SECONDS:
        result = "BROKEN: slow"
    return result


def flip_bits(
    folder: Path,
    trials: int,
    draw: random.Random,
    read: Callable[[Path], Any],
    same: Callable[[Any], bool],
) -> Counter[str]:
    """Flip one bit of one file of a folder, each file in turn."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    counts: Counter[str] = Counter()
    for trial in range(trials):
        path = files[trial % len(files)]
        original = path.read_bytes()
        damaged = bytearray(original)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        counts[outcome(lambda: read(folder), same)] += 1
        path.write_bytes(original)
    return counts


def mutated(value: Any, draw: random.Random) -> Any:
    """A copy of JSON with one value, key or entry changed, at whatever depth."""
    value = copy.deepcopy(value)
    node = value
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw.choice(keys)
        child = node[key]
        if isinstance(child, dict | list) and child and draw.random() < 0.7:
            node = child
            continue
        kind = draw.random()
        if kind < 0.7:
            node[key] = draw.choice(HOSTILE)
        elif kind < 0.85 or isinstance(node, list):
            del node[key]
        else:
            node[draw.choice(["", "x" * 1000, "\x1b[31m", "__class__"])] = node.pop(key)
        return value


def mutate_configs(folders: list[Path], trials: int, draw: random.Random) -> Counter[str]:
    counts: Counter[str] = Counter()
    for trial in range(trials):
        folder = folders[trial % len(folders)]
        path = folder / "config.json"
        original = path.read_text()
        path.write_text(json.dumps(mutated(json.loads(original), draw)))
        counts[outcome(partial(load_checkpoint, folder, unverified=True), lambda _: True)] += 1
        path.write_text(original)
    return counts


def mutate_headers(folders: list[Path], trials: int, draw: random.Random) -> Counter[str]:
    """Change the JSON at the start of a safetensors file, or the eight bytes of its length."""
    counts: Counter[str] = Counter()
    for trial in range(trials):
        folder = folders[trial % len(folders)]
        path = folder / "model.safetensors"
        original = path.read_bytes()
        size = int.from_bytes(original[:8], "little")
        header = json.dumps(mutated(json.loads(original[8 : 8 + size]), draw)).encode()
        length = draw.choice([len(header)] * 8 + [0, 2**63])
        path.write_bytes(length.to_bytes(8, "little") + header + original[8 + size :])
        counts[outcome(partial(load_checkpoint, folder, unverified=True), lambda _: True)] += 1
        path.write_bytes(original)
    return counts


def contents(shards: Shards) -> list[Any]:
    return [
        {name: getattr(shard, name).tolist() for name in ("tokens", "sentences", "documents")}
        for shard in map(shards.arrays, range(len(shards)))
    ]


def campaign(folder: Path, args: argparse.Namespace, draw: random.Random) -> dict[str, Any]:
    shards = folder / "shards"
    tokenizer = tiny_tokenizer(folder / "tokenizer-of-shards")
    build_shards([tiny_corpus(folder / "corpus.txt")], tokenizer=tokenizer, out=shards)
    before = contents(Shards.open(shards))
    ours = save_model(folder / "ours", "masked", "classify")
    weights = load_checkpoint(ours)[0].model.state_dict()
    convert_folder(save_model(folder / "plain", "masked"), folder / "theirs")
    bare = shutil.copytree(ours, folder / "bare")
    (bare / "manifest.json").unlink()

    def same_weights(checkpoint: Any) -> bool:
        state = checkpoint[0].model.state_dict()
        return all(torch.equal(weights[name], tensor) for name, tensor in state.items())

    return {
        "shards": flip_bits(
            shards,
            args.shards,
            draw,
            lambda path: contents(Shards.open(path, verify=True)),
            before.__eq__,
        ),
        "checkpoints": flip_bits(ours, args.checkpoints, draw, load_checkpoint, same_weights),
        "checkpoints_without_manifest": flip_bits(
            bare, args.checkpoints, draw, load_checkpoint, lambda _: False
        ),
        "configs": mutate_configs([ours, folder / "theirs"], args.configs, draw),
        "headers": mutate_headers([ours, folder / "theirs"], args.headers, draw),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--checkpoints", type=int, default=50)
    parser.add_argument("--configs", type=int, default=2000)
    parser.add_argument("--headers", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    results_file.add_out(parser)
    args = parser.parse_args()
    results_file.begin(args.out)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        results = campaign(Path(temporary), args, random.Random(args.seed))
    broken = sum(
        count
        for counts in results.values()
        for name, count in counts.items()
        if name.startswith("BROKEN")
    )
    facts = results | {"broken": broken, "seconds": round(time.perf_counter() - begin, 1)}
    results_file.publish(facts, args.out)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
