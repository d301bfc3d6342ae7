"""Commands in odd surroundings: streams that are closed, full, unread, and locales that lack letters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support.command import ENVIRONMENT
from tests.trial.case import HELD, REFUSED, Attack, Failed
from tests.trial.commands import check_said
from tests.trial.samples import Samples

RUN = "--text text.txt --ctx 64 --chunks 2"
SAY = [
    "--help", "--version", "quantize --help", "info", "info model.gguf", "info model.gguf --json",
    "tables list", "tables show basic", "histogram model.gguf --mode q8_0", "error model.gguf quantized.gguf",
    f"perplexity model.gguf {RUN}", f"compare model.gguf quantized.gguf {RUN}", "study ls results",
    f"compare model.gguf quantized.gguf {RUN} --json", "study show results", "study show results --json",
    "study validate results", "completion bash", "quantize model.gguf no/such/folder --mode q4_0", "nonsense",
    "quantize model.gguf OUT --mode ggml:Q4_K", "speed model.gguf --prompt 8 --generate 2 --rounds 1",
]  # fmt: skip
OUTPUTS = ["", ">&-", ">/dev/full", "| true", "| head -c 1", ">/dev/null"]
ERRORS = ["", "2>&-", "2>/dev/full", "2> >(true)", "2>/dev/null"]
INPUTS = ["", "<&-", "</dev/null"]
LOCALES = [{}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "ascii"},
           {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "no_SUCH"}, {"TERM": "dumb", "COLUMNS": "1"},
           {"COLUMNS": "-3"}, {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"}]  # fmt: skip


class Surroundings(Attack):
    name, what, one_in = "surroundings", "odd streams and locales", 5000

    def prepare(self, samples: Samples, folder: Path) -> None:
        self._samples = samples

    def run(self, rng: np.random.Generator, folder: Path) -> str:
        words = str(rng.choice(SAY)).replace("OUT", str(folder / "out.gguf"))
        streams = " ".join(str(rng.choice(choices)) for choices in (INPUTS, ERRORS, OUTPUTS))
        environment = LOCALES[rng.integers(len(LOCALES))]
        line = f"{sys.executable} -m pyquant {words} {streams}"
        what = f"pyquant {words} {streams} {environment or ''}"
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line], cwd=self._samples.folder, capture_output=True,
                text=True, errors="replace", env={**ENVIRONMENT, **environment}, timeout=120, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(f"{what}: hangs") from None
        check_said(done.stderr + done.stdout, done.returncode, what)
        if done.returncode not in (0, 1, 2):
            raise Failed(f"{what}: status {done.returncode}: {done.stderr[-200:]}")
        return REFUSED if done.returncode else HELD
