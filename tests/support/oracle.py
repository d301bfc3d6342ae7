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

    def run_until(self, pattern: str, tool: str, *arguments: object) -> str:
        """Runs a tool until what it prints matches: at times llama-perplexity leaves out its last lines."""
        for _ in range(20):
            printed = self.run(tool, *arguments)
            if re.search(pattern, printed):
                return printed
        pytest.fail(f"{tool} does not print {pattern!r}:\n{printed[-2000:]}")

    def refuses(self, pattern: str, tool: str, *arguments: object) -> None:
        """Runs a tool that has to fail until what it prints matches: its last lines may be left out, and of
        a tool that fails at once they mostly are."""
        for _ in range(40):
            with pytest.raises(AssertionError) as refusal:
                self.run(tool, *arguments)
            if re.search(pattern, str(refusal.value)):
                return
        pytest.fail(f"{tool} does not say {pattern!r}:\n{refusal.value}")

    def quantize(self, source: Path, output: Path, kind: str, *options: object) -> Path:
        self.run("llama-quantize", *options, source, output, kind, 2)
        return output
