"""Every numeric option of every command, at its bounds and beyond."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import numpy as np

from pyquant import limits
from pyquant.cli import app
from pyquant.limits import Limit
from tests.support.command import numeric_options
from tests.trial.case import HELD, REFUSED, SKIPPED, Attack, Failed
from tests.trial.mutations import judged
from tests.trial.samples import Samples

WORK = (limits.TOKENS, limits.ROUNDS)  # of these more is more work, which is not tried
RUN = ["--text", "text.txt", "--ctx", "64", "--chunks", "2"]
# Words that each command with a number needs beside it; OUT is a file.
WORDS = {
    "quantize": ["model.gguf", "OUT.pqz", "--mode", "ecsq", "--hessian", "stats.gguf"],
    "histogram": ["model.gguf", "--mode", "q4_0_multizero"],
    "calibrate": ["model.gguf", *RUN, "-o", "OUT"],
    "sensitivity": ["model.gguf", "--hessian", "stats.gguf", *RUN, "-o", "OUT"],
    "perplexity": ["model.gguf", *RUN],
    "compare": ["model.gguf", "quantized.gguf", *RUN],
    "error": ["model.gguf", "quantized.gguf"],
    "speed": ["model.gguf", "--prompt", "2", "--generate", "1", "--rounds", "1"],
    "pack": ["quantized.gguf", "OUT"],
    "unpack": ["quantized.pqz", "OUT"],
    "tables build": ["model.gguf", "-o", "OUT"],
    "tables learn": ["model.gguf", "--hessian", "stats.gguf", "-o", "OUT"],
    "study run": ["none.toml", "--results", "OUT"],
}
BEYOND = ["nan", "inf", "-inf", "-1", "0", "1e999", "99999999999", "9" * 40, "1e-30", "0x10", "", "--", "½"]


class Numbers(Attack):
    name, what, one_in = "numbers", "every numeric option at its bounds and beyond", 2000
    forked = True
    addresses = 64 << 30  # of up to 512 threads

    def prepare(self, samples: Samples, folder: Path) -> None:
        self._samples = samples
        self._options = [option for option in numeric_options() if option.command in WORDS]

    def run(self, rng: np.random.Generator, folder: Path) -> str:
        option = self._options[rng.integers(len(self._options))]
        limit = option.limit
        assert limit, option.flag
        low, high = limit.low, limit.high
        near = [low, high, low - 1, high + 1, -high, (low + high) / 2]
        text = str(rng.choice([*map(str, near), *BEYOND]))
        fits = _fits(limit, text)
        if fits and limit in WORK and float(text) > 100:
            return SKIPPED
        words = [word.replace("OUT", str(folder / "out")) for word in WORDS[option.command]]
        if option.flag in words:  # given twice it would be refused for that
            at = words.index(option.flag)
            del words[at : at + 2]
        os.chdir(self._samples.folder)
        for path in folder.iterdir():
            path.unlink()
        return _called([*option.command.split(), *words, option.flag, text], fits)


def _fits(limit: Limit, text: str) -> bool:
    try:
        limit.parse(text)
    except ValueError:
        return False
    return True


def _called(line: list[str], fits: bool) -> str:
    status: object = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            outcome = judged(lambda: app(line))
        except SystemExit as leaving:
            status, outcome = leaving.code, REFUSED if leaving.code else HELD
        except Failed as failed:
            raise Failed(f"{' '.join(line)}: {failed}") from None
    if not fits and status != 2:
        raise Failed(f"{' '.join(line)}: taken, and is out of range")
    return outcome
