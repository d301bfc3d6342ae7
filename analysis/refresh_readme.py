"""Runs the commands in README.md's console blocks again and puts in what they print now.

    .venv/bin/python analysis/refresh_readme.py

A block begins with ```console; its lines after `$ ` are run by a shell in the repository's root, with
the environment's commands first in PATH. Lines of output past 40 in a command are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(```console\n)(.*?)(```\n)", re.DOTALL)
LONGEST = 40


def main() -> None:
    readme = ROOT / "README.md"
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OUT": folder,
            "COLUMNS": "110",
        }
        text = BLOCK.sub(lambda block: refreshed(block, environment), readme.read_text())
    readme.write_text(text)


def refreshed(block: re.Match[str], environment: dict[str, str]) -> str:
    commands = [line for line in block[2].splitlines() if line.startswith("$ ")]
    return block[1] + "".join(run(command, environment) for command in commands) + block[3]


def run(line: str, environment: dict[str, str]) -> str:
    print(line, file=sys.stderr)
    done = subprocess.run(
        line.removeprefix("$ "),
        shell=True,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shown = [printed.rstrip() for printed in done.stdout.replace(environment["OUT"], "$OUT").splitlines()]
    while shown and not shown[0]:
        shown.pop(0)
    while shown and not shown[-1]:
        shown.pop()
    if len(shown) > LONGEST:
        shown = [*shown[:LONGEST], "..."]
    return "\n".join([line, *shown]) + "\n"


if __name__ == "__main__":
    main()
