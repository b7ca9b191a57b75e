"""Snapshots of a run on several ranks: one writes, all read the same. A state in; whether it is
kept, or the newest, out."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from litebert.data.stream import Position
from litebert.errors import CheckpointError
from litebert.files import DISK_FULL
from litebert.storage.snapshot import Snapshot, SnapshotStore
from litebert.train.log import Log
from litebert.train.loop import State
from litebert.train.runtime import Runtime


class Keeper:
    """Saves and finds snapshots; what goes wrong is written to the log as an event."""

    def __init__(
        self,
        store: SnapshotStore,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        log: Log,
        runtime: Runtime,
    ) -> None:
        self.store, self.model, self.optimizer = store, model, optimizer
        self.log, self.runtime = log, runtime
        self.saved = -1
        """The step of the newest snapshot."""

    def save(
        self, state: State, position: Position, extra: Mapping[str, Any], *, recipe: str
    ) -> bool:
        """Write a snapshot of this moment while the other ranks wait; whether it is on the disk."""
        written = self.runtime.is_main and self._write(state, position, extra, recipe)
        kept = bool(self.runtime.told(written))
        self.saved = state.step if kept else self.saved
        return kept

    def latest(self) -> Snapshot | None:
        """The newest valid snapshot that the first rank finds, in the model and optimizer of every
        rank, and metrics cut."""
        reports: list[str] = []
        self.store.report = reports.append
        snapshot = self.store.latest() if self.runtime.is_main else None
        first = round(self.runtime.told(-1 if snapshot is None else snapshot.step))
        if not self.runtime.is_main and first >= 0:
            snapshot = self.store.latest(set_aside=False)
        found = -1 if snapshot is None else snapshot.step
        if found != first:
            raise CheckpointError(
                f"rank {self.runtime.rank} finds the snapshot of step {found} in "
                f"{self.store.folder}, rank 0 that of {first}; "
                "every machine must see the same run folder, so put it on a shared disk"
            )
        if snapshot is not None:
            snapshot.restore(self.model, self.optimizer)
            self.log.rewind(snapshot.metrics_offset)
            self.saved = snapshot.step
        for message in reports:
            self._report(max(found, 0), message)
        return snapshot

    def _write(
        self, state: State, position: Position, extra: Mapping[str, Any], recipe: str
    ) -> bool:
        if not is_finite(self.model):  # a run that goes back must not find such weights there
            self._report(state.step, "weights are not finite any more, so they are not saved")
            return False
        try:
            offset = self.log.offset
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._report(
                state.step,
                f"no snapshot of step {state.step}: the disk is too full even for metrics; free "
                "some space",
            )
            return False
        counters = {
            "tokens": state.tokens,
            "seconds": state.seconds,
            "rate_scale": state.rate_scale,
        }
        snapshot = Snapshot.capture(
            self.model,
            self.optimizer,
            step=state.step,
            epoch=position.epoch,
            index=position.index,
            recipe=recipe,
            metrics_offset=offset,
            extra={**extra, "state": counters},
        )
        self.store.report = lambda message: self._report(state.step, message)
        return self.store.save(snapshot) is not None

    def _report(self, step: int, message: str) -> None:
        self.log.write("event", step, event="snapshot", message=message)


def is_finite(model: nn.Module) -> bool:
    """Whether every weight is a number."""
    norms = torch._foreach_norm(list(model.parameters()))
    return bool(torch.stack(norms).isfinite().all())
