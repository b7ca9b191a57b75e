"""Programs of bench/, torture/ and tools/ in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_program(
    module: str, *flags: object, warnings: str = "ignore", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """`python -m MODULE FLAGS` in the repository's root; pytest's own limit ends one that hangs."""
    command = [sys.executable, "-W", warnings, "-m", module, *map(str, flags)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment
    )
