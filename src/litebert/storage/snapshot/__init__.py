"""Snapshots, to resume from: what one holds, and the folder in which the newest valid one wins. No
pickle."""

from litebert.storage.snapshot.state import Snapshot, random_states, restore_random_states
from litebert.storage.snapshot.store import SnapshotStore

__all__ = ["Snapshot", "SnapshotStore", "random_states", "restore_random_states"]
