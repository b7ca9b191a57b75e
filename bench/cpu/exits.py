"""What early exit saves on a CPU: a model fine-tuned with exits and its task's dev split in; score,
layer applications and time beside all layers, at batch 1 and 32. Prints one JSON object.

    litebert finetune sst2 --model base --data glue/SST-2 --out runs/sst2-exits --exits each
    python -m bench.cpu.exits sst2 --model runs/sst2-exits --data glue/SST-2

The model is exported in int8 for --engines, and every calibrated criterion is a contender; --rules
adds others, such as confidence=0.95. All contenders take turns on the first --examples examples of
dev, one by one and 32 at a time; a time is the least of the rounds.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns
from litebert.files import write_json
from litebert.infer.cpu import processor
from litebert.infer.exit_scores import chosen_rules, score_exits
from litebert.infer.exits import make_rule
from litebert.infer.export.folder import ExportOptions, export_model
from litebert.infer.exported import Precision
from litebert.infer.predictor import Predictor, load
from litebert.tasks.decode.exits import ExitRule
from litebert.tasks.examples import TaskExample
from litebert.train.evaluate import FinetunedModel, open_task_for

BATCHES = (1, 32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--engines", nargs="+", default=["onnx"])
    parser.add_argument("--precision", choices=get_args(Precision), default="int8")
    parser.add_argument("--rules", nargs="*", default=[], help="CRITERION=THRESHOLD")
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    report: dict[str, Any] = {"processor": processor(), "task": options.task}
    for engine in options.engines:
        with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
            exported = Path(folder) / engine
            export_model(
                options.model,
                exported,
                ExportOptions(runtime=engine, precision=options.precision, force=True),
            )
            predictor = load(exported, threads=options.threads)
            report[engine] = measure(predictor, options)
        if options.out is not None:
            write_json(options.out, report)
    publish(report, options.out)


def measure(predictor: Predictor, options: argparse.Namespace) -> dict[str, Any]:
    assert predictor.card is not None, "a fine-tuned model"
    model = FinetunedModel(
        folder=options.model,
        tokenizer=predictor.tokenizer,
        card=predictor.card,
        engine=predictor.engine.predict,
    )
    opened = open_task_for(model, options.task, options.data, None, ("dev",))
    model, examples = model.for_task(opened.task), opened.splits["dev"]
    rules = chosen_rules(predictor, "all", None)
    for each in options.rules:
        criterion, _, threshold = each.partition("=")
        rules.append(
            make_rule(predictor.engine.config, predictor.card, criterion, float(threshold))
        )
    scores = score_exits(predictor, opened.task, examples, rules, predict=model.predict)
    result: dict[str, Any] = {"dev": scores.to_dict()}
    for size in BATCHES:
        few = list(examples[: options.examples])
        contenders = {"all layers": contender(predictor, None, few, size)}
        contenders |= {
            f"{rule.criterion} {rule.threshold:.12g}": contender(predictor, rule, few, size)
            for rule in rules
        }
        times = in_turns(contenders, options.rounds)
        seconds = {name: min(each.clock) for name, each in times.items()}
        result[f"batch {size}"] = {
            name: {
                "seconds": seconds[name],
                "times_faster": seconds["all layers"] / seconds[name],
                "layers_saved": (times["all layers"].last or 0) / (each.last or 1),
            }
            for name, each in times.items()
        }
        print(f"{predictor.engine.name}, batch {size}: {seconds}", file=sys.stderr, flush=True)
    predictor.engine.exit_rule = None
    return result


def contender(
    predictor: Predictor, rule: ExitRule | None, examples: Sequence[TaskExample], size: int
) -> Callable[[], int]:
    """Predicts all examples; the number of layers that were computed for them, in all."""
    layers = len(predictor.engine.config.encoder.plan())

    def run() -> int:
        assert predictor.card is not None
        predictor.engine.exit_rule = rule
        computed = 0
        for at in range(0, len(examples), size):
            for each in predictor.engine.predict(predictor.card, examples[at : at + size]):
                computed += getattr(each, "depth", None) or layers
        return computed

    return run


if __name__ == "__main__":
    main()
