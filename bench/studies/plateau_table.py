"""The plateau study as a person reads it: metrics of runs in; table.md, curves.json and plot.svg
out.

    python -m bench.studies.plateau_table results/2026-11-16_plateau RUN.jsonl …

Every number comes from the metrics that the runs wrote; a run that was stopped early is marked as
such.
"""

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

from bench.common.results import begin
from bench.common.tables import markdown

matplotlib.use("svg")
import matplotlib.pyplot as plt

LEFT = 6.5
WINDOW = 50


def read(path: Path) -> dict[str, Any]:
    """What one run came to, and its curve as means over a window of steps."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "step"]
    last = [record for record in records if record["kind"] == "evaluation"][-1]
    ends = range(WINDOW, len(steps) + 1, WINDOW)
    curve = [
        (
            steps[end - 1]["tokens"],
            round(mean(s["masked_loss"] for s in steps[end - WINDOW : end]), 4),
        )
        for end in ends
    ]
    left = next((tokens for tokens, loss in curve if loss < LEFT), None)
    return {
        "run": path.stem,
        "tokens": steps[-1]["tokens"],
        "steps": len(steps),
        "minutes": round(steps[-1]["seconds"] / 60, 2),
        "heldout_at_tokens": last["tokens"],
        "heldout_loss": round(last["masked_loss"], 3),
        "heldout_accuracy": round(last["masked_accuracy"], 3),
        "sop_accuracy": round(last["sop_accuracy"], 3),
        "left_at_tokens": left,
        "curve": curve,
    }


def table(rows: list[dict[str, Any]]) -> str:
    columns = "run,tokens,steps,minutes,held-out loss,accuracy,order accuracy,below 6.5 after"
    lines = []
    for row in sorted(rows, key=lambda row: (-row["heldout_at_tokens"], row["heldout_loss"])):
        left = "never" if row["left_at_tokens"] is None else f"{row['left_at_tokens'] / 1e6:.0f} M"
        early = (
            ""
            if row["heldout_at_tokens"] == row["tokens"]
            else f" (at {row['heldout_at_tokens'] / 1e6:.0f} M)"
        )
        lines.append(
            [
                row["run"],
                f"{row['tokens'] / 1e6:.0f} M",
                f"{row['steps']:,}",
                row["minutes"],
                f"{row['heldout_loss']}{early}",
                row["heldout_accuracy"],
                row["sop_accuracy"],
                left,
            ]
        )
    return markdown(columns.split(","), lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 5))
    colors = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for color, row in zip(colors, sorted(rows, key=lambda row: row["heldout_loss"]), strict=False):
        style = "--" if row["run"].startswith("post") else "-"
        axes.plot(
            [t / 1e6 for t, _ in row["curve"]],
            [loss for _, loss in row["curve"]],
            style,
            color=color,
            label=row["run"],
        )
    axes.set_ylim(4.4, 7.6)
    axes.set_xlabel("training tokens, millions")
    axes.set_ylabel("masked-token loss, mean of 50 steps")
    axes.axhline(LEFT, color="gray", linewidth=0.8)
    axes.legend(fontsize=7, loc="lower left", ncol=2)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument(
        "metrics", type=Path, nargs="+", help="metrics.jsonl of each run, named after it"
    )
    args = parser.parse_args()
    rows = [read(path) for path in args.metrics]
    begin(args.out)
    (args.out / "table.md").write_text(table(rows))
    (args.out / "curves.json").write_text(
        "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    )
    plot(rows, args.out / "plot.svg")
    print(table(rows))


if __name__ == "__main__":
    main()
