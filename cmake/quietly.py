"""quietly.py LOG COMMAND...: runs a command with its output into LOG.

Of that it shows the last line only, so that one sees it live, and the reason where it fails.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

OFFLINE = re.compile(r"No matching distribution found|ConnectionPool")


def main() -> None:
    log, command = Path(sys.argv[1]), sys.argv[2:]
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as out,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as child,
    ):
        shown = time.monotonic()
        for line in child.stdout:
            out.write(line)
            out.flush()
            shown = show(line, shown)
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if child.returncode != 0:
        sys.exit(reason(log))


def show(line: str, shown: float) -> float:
    """Shows `line`: over the one before in a terminal, else one in ten seconds. When it did so."""
    line = line.strip()
    now = time.monotonic()
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 4
        print(f"\r  {line[:width]}\033[K", end="", flush=True)
    elif line and now - shown > 10:
        print(f"  {line}", flush=True)
    else:
        return shown
    return now


def reason(log: Path) -> str:
    """One sentence where it is known, else what was said around the first failure."""
    lines = log.read_text(errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "")
    if last.startswith("pyquant: "):
        return last
    if any(OFFLINE.search(line) for line in lines[-30:]):
        return f"pyquant: packages could not be downloaded: is there a network? All that was said: {log}"
    failed = (n for n, line in enumerate(lines) if re.search(r"FAILED: |CMake Error", line))
    begin = next(failed, max(len(lines) - 30, 0))
    return "\n".join([*lines[begin : begin + 30], f"pyquant: this failed; all that was said: {log}"])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
