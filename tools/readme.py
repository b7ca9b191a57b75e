"""What the README shows of a terminal, run again: commands in its console blocks in; what they
print now out.

    python -m tools.readme [README.md] [--check]

In a block marked ```console a line that begins with "$ " is run by the shell, and the lines after
it, up to the next command or the block's end, become what it prints. --check changes nothing and
fails where a line differs by more than its last digits.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+")
CLOSE = 0.02
"""Processors round differently: numbers may differ by this part of themselves, or by one in the
last place shown."""


def run(command: str) -> str:
    """What a command prints, with the scripts of this Python first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, env=os.environ | {"PATH": path}
    )
    if done.returncode:
        raise SystemExit(f"{command}\nended with {done.returncode}: {done.stderr}")
    return done.stdout


def again(page: str) -> str:
    """The page with everything that its console blocks show printed anew."""

    def block(match: re.Match[str]) -> str:
        commands = [line[2:] for line in match[0].splitlines() if line.startswith("$ ")]
        return "".join(f"$ {command}\n{run(command)}" for command in commands)

    return BLOCK.sub(block, page)


def differ(before: str, after: str) -> list[str]:
    """Lines that say something else."""
    old, new = before.splitlines(), after.splitlines()
    pairs = [(one, other) for one, other in zip(old, new, strict=False) if not is_close(one, other)]
    wrong = [f"the page has   {one}\nit is now      {other}" for one, other in pairs]
    return wrong + (
        [f"{len(old)} lines in the page, {len(new)} now"] if len(old) != len(new) else []
    )


def is_close(one: str, other: str) -> bool:
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(
        abs(float(a) - float(b)) <= max(CLOSE * abs(float(a)), 1.5 * 10 ** -len(a.split(".")[1]))
        for a, b in pairs
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, nargs="?", default=Path("README.md"))
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; fail where the page says something else",
    )
    args = parser.parse_args()
    before = args.page.read_text(encoding="utf-8")
    after = again(before)
    if args.check:
        wrong = differ(before, after)
        print("\n".join(wrong) or "all as the page says")
        return int(bool(wrong))
    args.page.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
