"""What bench/gpu/step.py measured, as a person reads it: rows in; ratios and a page of tables out.

    python -m bench.gpu.table rows.jsonl …  # one page of what was measured in several goes

Without it, step.py writes the page of its own rows.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.common.tables import markdown

GOALS = {
    "base-512": (2.0, 900),
    "base-128": (1.7, 1050),
    "large-512": (1.7, 280),
    "xxlarge-512": (1.25, 45),
    "xxlarge-512-fp8": (1.5, 55),
}
"""Times the peer, and thousands of tokens a second."""
BEST = "× best of Hugging Face"
"""How much faster ours is than the variant that leaves the least: the ratio that counts."""
FILLED = ("full", "usual")
"""Variants of the peer whose rows have no padding."""
OTHERWISE = ("failed", "skipped")
UNSAID = ("part", "what", "seconds", "spread")
"""Of the tasks' rows."""
Row = dict[str, Any]


def ratios(rows: list[Row]) -> Iterator[Row]:
    """Of each shape: our best step, the peer's best ones, and how much faster ours is. A step that
    errs too much is none."""
    done = [row for row in rows if row["part"] == "speed" and "real_ktok_s" in row]
    for shape in dict.fromkeys(row["shape"] for row in done):
        ours = [row for row in done if row["shape"] == shape and row["who"] == "litebert"]
        ours = [
            row for row in ours if row.get("is_exact") is not False and "fast_backward" not in row
        ]
        theirs = [
            row
            for row in done
            if row["shape"] == shape.removesuffix("-fp8") and row["who"] != "litebert"
        ]
        if not ours:
            continue
        best = max(ours, key=lambda row: row["real_ktok_s"])
        ratio: dict[str, Any] = {"shape": shape, "ours": best}
        peers = dict.fromkeys(row["who"] for row in theirs)
        for who in peers:
            peer = max(
                (row for row in theirs if row["who"] == who), key=lambda row: row["real_ktok_s"]
            )
            ratio[who] = peer["positions_ktok_s"]
            # the same rows: positions against positions; rows filled up: what each really computes
            of_rows = round(best["positions_ktok_s"] / peer["positions_ktok_s"], 2)
            ratio[f"× {who}"] = (
                round(best["real_ktok_s"] / peer["real_ktok_s"], 2)
                if who.endswith(FILLED)
                else of_rows
            )
            ratio[f"× {who}, padding counted"] = of_rows
        if peers:
            ratio[BEST] = min(ratio[f"× {who}"] for who in peers)
        yield ratio


def table(rows: list[Row]) -> str:
    """Everything as a person reads it."""
    speed = [row for row in rows if row["part"] == "speed"]
    columns = (
        "shape",
        "who",
        "rows",
        "microbatch",
        "mode",
        "step_ms",
        "real_ktok_s",
        "positions_ktok_s",
        "model_tflops",
    )
    columns += (
        "ceiling_tflops",
        "peak_gib",
        "reserved_gib",
        "first_step_seconds",
        "waited",
        "loader_costs",
        "error_ratio",
    )
    peers = [who for who in dict.fromkeys(row["who"] for row in speed) if who != "litebert"]
    compared = [
        {"shape": ratio["shape"], "positions_ktok_s": ratio["ours"]["positions_ktok_s"]}
        | {"real_ktok_s": ratio["ours"]["real_ktok_s"]}
        | {
            key: ratio.get(key, "")
            for peer in peers
            for key in (peer, f"× {peer}", f"× {peer}, padding counted")
        }
        | {BEST: ratio.get(BEST, "")}
        | dict(zip(("asked ×", "asked ktok_s"), GOALS.get(ratio["shape"], ("", "")), strict=True))
        for ratio in ratios(rows)
    ]
    memory = [row for row in rows if row["part"] == "memory"]
    largest = [
        row | too_many(row, rows) for row in rows if row["part"] == "largest" and "largest" in row
    ]
    start = [row for row in rows if row["part"] == "start"]
    loader = [row for row in rows if row["part"] == "loader"]
    ablation = [row for row in rows if row["part"] == "ablation"]
    profiles = [row | row["classes"] for row in rows if row["part"] == "profile"]
    tasks = [row for row in rows if row["part"] == "tasks"]
    asking = [row for row in tasks if "embed" in row["what"]]
    tuning = [row for row in tasks if row not in asking and row["what"] != "setting"]
    kinds = dict.fromkeys(kind for row in profiles for kind in row["classes"])
    parts = (
        ("Our best against the peer's best, thousands of tokens a second", compared, None),
        ("Every step", speed, (*columns, "is_exact", *OTHERWISE)),
        (
            "Milliseconds of a step by kernel",
            profiles,
            ("shape", "who", "rows", "timed_ms", "kernel_ms", "idle", "kernels", *kinds),
        ),
        (
            "The step without one thing at a time",
            ablation,
            (
                "shape",
                "without",
                "step_ms",
                "× step",
                "positions_ktok_s",
                "peak_gib",
                "reserved_gib",
                *OTHERWISE,
            ),
        ),
        (
            "Memory",
            memory,
            ("shape", "rows", "mode", "limit_gib", "fits", "peak_gib", "reserved_gib", *OTHERWISE),
        ),
        (
            "Largest batch, rows in one forward and backward",
            largest,
            ("shape", "mode", "limit_gib", "largest", "too many"),
        ),
        (
            "Seconds to the first step",
            start,
            ("shape", "cache", "build_seconds", "first_step_seconds", *OTHERWISE),
        ),
        (
            "An epoch of SST-2",
            tuning,
            ("what", *dict.fromkeys(key for row in tuning for key in row if key not in UNSAID)),
        ),
        (
            "Texts embedded",
            asking,
            ("what", *dict.fromkeys(key for row in asking for key in row if key not in UNSAID)),
        ),
        (
            "The loader alone",
            loader,
            ("shape", "rows", "workers", "real_ktok_s", "positions_ktok_s", *OTHERWISE),
        ),
    )
    return "\n".join(
        f"## {title}\n\n{grid(lines, names)}" for title, lines, names in parts if lines
    )


def too_many(largest: Row, rows: list[Row]) -> Row:
    """The fewest rows that were tried and did not fit; numbers in between were not tried."""
    alike = [
        row
        for row in rows
        if all(row.get(key) == largest[key] for key in ("part", "shape", "mode", "limit_gib"))
    ]
    return {"too many": min((row["rows"] for row in alike if row.get("fits") is False), default="")}


def grid(rows: list[Row], names: tuple[str, ...] | None) -> str:
    names = tuple(
        name for name in names or tuple(rows[0]) if any(row.get(name, "") != "" for row in rows)
    )
    return markdown(names, ([row.get(name, "") for name in names] for row in rows))


if __name__ == "__main__":
    print(
        table(
            [
                json.loads(line)
                for place in sys.argv[1:]
                for line in Path(place).read_text().splitlines()
            ]
        ),
        end="",
    )
