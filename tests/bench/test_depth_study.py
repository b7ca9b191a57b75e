"""The depth study measures what it says: memory that grows with depth, as its root, or not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.studies import depth

CONFIG = replace(depth.SHAPE, hidden_size=32, ffn_size=128, num_attention_heads=2, max_positions=32)
IDS = torch.arange(5, 69).view(2, 32)


def test_allocations_count_what_is_alive_at_once() -> None:
    with depth.Allocations() as allocations:
        for _ in range(3):
            half = torch.zeros(256)  # 1 KiB, freed when the next one is there
        pair = half + 1, half.view(16, 16)
    assert allocations.peak == 2048
    assert pair[0].sum() == 256


def test_memory_against_depth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(depth, "DEPTHS", (4, 16))
    rows = depth.measure(CONFIG, IDS, torch.float32, rounds=1)
    few, many = (
        {row["layers"]: row["peak_mib"] for row in rows if row["depth"] == n} for n in (4, 16)
    )
    growth = {name: many[name] / few[name] for name in few}
    assert growth["plain"] > 3
    assert 1 < growth["checkpointed, √depth"] < 2
    assert growth["reversible"] == 1
    saved = {(row["layers"], row["depth"]): row["saved_mib"] for row in rows}
    assert saved["reversible", 4] == saved["reversible", 16]
    assert saved["checkpointed, every layer", 4] < saved["checkpointed, every layer", 16]
    errors = depth.errors(CONFIG, IDS)
    assert [row["reversible"] < 1e-5 for row in errors] == [True, True, False, False]
    figures = {"rows": rows, "clock": "seconds", "about": "a test"}
    depth.draw(figures, tmp_path / "depth.png")
    assert (tmp_path / "depth.png").stat().st_size > 10_000
