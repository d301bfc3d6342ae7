"""Stock llama.cpp's own tools, built from the same source."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Oracle:
    """Stock llama.cpp's own tools."""

    folder: Path

    def run(self, tool: str, *arguments: object) -> str:
        """Runs a tool; returns what it printed."""
        command = [self.folder / tool, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        output = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{tool}: exit status {done.returncode}\n{output[-3000:]}"
        return output

    def prints(self, pattern: str, tool: str, *arguments: object) -> str:
        """Runs a tool that prints a line which the pattern finds; returns all that it printed."""
        printed = self.run(tool, *arguments)
        assert re.search(pattern, printed), f"{tool} does not print {pattern!r}:\n{printed[-2000:]}"
        return printed

    def refuses(self, pattern: str, tool: str, *arguments: object) -> None:
        """Runs a tool that fails, and says why."""
        with pytest.raises(AssertionError, match=pattern):
            self.run(tool, *arguments)

    def quantize(self, source: Path, output: Path, kind: str, *options: object) -> Path:
        self.run("llama-quantize", *options, source, output, kind, 2)
        return output
