"""Runs the commands in README.md's console blocks again and puts in what they print now.

    .venv/bin/python analysis/refresh_readme.py

A block begins with ```console; its lines after `$ ` are run by a shell in the repository's root, with
the environment's commands first in PATH, after what an earlier run wrote is removed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(```console\n)(.*?)(```\n)", re.DOTALL)


def main() -> None:
    readme = ROOT / "README.md"
    for written in [*ROOT.glob("demo/*.gguf"), ROOT / "demo/text.txt", ROOT / "docs/histogram.png"]:
        written.unlink(missing_ok=True)
    (ROOT / "demo").mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "110"}
    readme.write_text(BLOCK.sub(lambda block: refreshed(block, environment), readme.read_text()))


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
    shown = [printed.rstrip() for printed in done.stdout.splitlines()]
    while shown and not shown[0]:
        shown.pop(0)
    while shown and not shown[-1]:
        shown.pop()
    return "\n".join([line, *shown]) + "\n"


if __name__ == "__main__":
    main()
