"""Snapshots, to resume from: what one holds, and the folder in which the newest valid one wins. No
pickle."""

from litebert.snapshot.state import Snapshot, random_states, restore_random_states
from litebert.snapshot.store import SnapshotStore

__all__ = ["Snapshot", "SnapshotStore", "random_states", "restore_random_states"]
