"""The command line, run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


def run(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyquant", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False, **options
    )
