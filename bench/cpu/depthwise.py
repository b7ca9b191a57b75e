"""What depth-wise batching costs and gains by the tokens in the layers, beside one call for all
texts. Prints one JSON object.

    python -m bench.cpu.depthwise
    python -m bench.cpu.depthwise --shape litebert-small --threads 1 --rounds 5

256 texts of 8 to 128 tokens wait; the engine computes them layer by layer, as many at once as have
so many tokens, or all in one call, which sorts them by length. No HTTP. With all layers, and with
exits after about half of them (random weights, see bench.cpu.serve_load). All contenders take
turns. `times one call` is the one call's processor time by each one's, which with one thread is
throughput; `ms in the layers` is how long a text takes from its first layer to its result while the
engine is never idle.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns
from bench.cpu.serve_load import CRITERION, exported, made_texts, save, sizes_of, threshold_of
from litebert.infer.continuous import Continuous
from litebert.infer.predictor import Predictor, load
from litebert.infer.verbs import text_example
from litebert.packing import num_special

TOKENS = (64, 128, 256, 512, 1024, 2048)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="litebert-small", help="preset whose sizes are taken")
    parser.add_argument("--engine", choices=("onnx", "openvino", "torch"), default="onnx")
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    texts = made_texts(options.texts, 8, 128)
    encoder = sizes_of(options.shape)
    figures: dict[str, Any] = {"shape": options.shape, "threads": options.threads}
    with tempfile.TemporaryDirectory(prefix="litebert-depthwise-") as name:
        for title, exits in (("all layers", "none"), ("with exits", "each")):
            model = save(Path(name) / exits, encoder, exits)
            rule: dict[str, Any] = {}
            if exits == "each":
                threshold = threshold_of(model, texts, len(encoder.plan()) / 2)
                rule = {"exit": CRITERION, "threshold": threshold}
            served = exported(model, options.engine, options.precision)
            predictor = load(served, device="cpu", threads=options.threads, **rule)
            figures[title] = measure(predictor, texts, options.rounds)
    publish(figures, options.out)


def measure(predictor: Predictor, texts: Sequence[str], rounds: int) -> dict[str, Any]:
    examples = [text_example(text) for text in texts]
    sizes = [len(text.split()) + num_special(False) for text in texts]
    spent: dict[str, list[float]] = {}

    def at_once() -> None:
        list(predictor.predict(examples, kind="classify"))

    def layered(most: int) -> None:
        seconds = layer_by_layer(predictor, examples, sizes, most)
        spent.setdefault(str(most), []).append(1e3 * statistics.mean(seconds))

    calls = {"one call": at_once}
    calls |= {str(most): lambda most=most: layered(most) for most in TOKENS}
    for call in calls.values():
        call()
    times = in_turns(calls, rounds)
    whole = times["one call"].cpu_seconds
    return {
        "cpu_seconds": {name: each.cpu_seconds for name, each in times.items()},
        "times one call": {name: whole / each.cpu_seconds for name, each in times.items()},
        "ms in the layers": {name: min(each) for name, each in spent.items()},
    }


def layer_by_layer(
    predictor: Predictor, examples: Sequence[Any], sizes: Sequence[int], most: int
) -> list[float]:
    """Seconds that each text took, with at most `most` tokens, or one text, in the layers."""
    continuous, began = Continuous(predictor), [0.0] * len(examples)
    seconds: list[float] = []
    active, next_one = 0, 0
    while next_one < len(examples) or active:
        while next_one < len(examples) and (not active or active + sizes[next_one] <= most):
            continuous.admit("classify", examples[next_one], next_one)
            began[next_one] = time.perf_counter()
            active += sizes[next_one]
            next_one += 1
        for number, result in continuous.tick():
            assert not isinstance(result, Exception)
            seconds.append(time.perf_counter() - began[number])
            active -= sizes[number]
    return seconds


if __name__ == "__main__":
    main()
