"""Finding the step of mode `uniform` that makes a file of a wanted size, or as good as a stock type."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.temporary import temporary_folder
from pyquant.fit.candidate import Evaluation, divergence_of
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pack import PackResult, pack_model
from pyquant.models.tensor_reader import Progress
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.schemes.uniform import Uniform

START = 0.005  # a step that makes codes of about 4 bits
TRIES = 8
CLOSE = 0.0015  # below a wanted size, as a share of what codes take of it
AS_GOOD = 0.03  # below a wanted divergence, as a share of it
NONE = 1e-12  # a divergence that is none
LARGEST_CODE_BITS = 6.5  # with more, most blocks do not fit into int8 by the model's step

# Told what came out of every step that is tried.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Try:
    """A step, and the size in bytes or the divergence in nats that it gave."""

    step: float
    found: float


class StepSearch:
    """Tries steps on a model: quantizes, packs, measures; all in a folder for temporary files.

    mode: uniform, with the step to begin with. tries: all that were made, in order. wanted: what they
    were for, in the same unit.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        mode: Uniform,
        *,
        threads: int | None = None,
        tell: Tell = lambda line: None,
        progress: Progress | None = None,
    ) -> None:
        self._model = Path(model)
        self._mode = mode
        self._threads = threads
        self._tell = tell
        self._progress = progress
        self.tries: list[Try] = []
        self.wanted: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As `pyquant quantize --json` prints it, under `search`."""
        tries = [{"step": one.step, "found": one.found} for one in self.tries]
        return {"wanted": self.wanted, "tries": tries}

    def for_bits(self, bits: float) -> Uniform:
        """The mode whose packed file has at most this many bits per weight of the model, embeddings
        and metadata included. Raises ConfigError, saying what is reachable."""
        return self.for_size(int(bits * ModelFile(self._model).n_weights / 8), f"{bits:g} bits per weight")

    def for_size(self, n_bytes: int, wanted: str | None = None) -> Uniform:
        """The mode whose packed file has at most this size. Raises ConfigError."""
        wanted = wanted or f"{n_bytes:,} bytes"
        with temporary_folder() as folder:
            first = self._packed(self._mode.step, folder)
            n_codes, rest = self._check_reachable(n_bytes, wanted, first)
            close = CLOSE * (n_bytes - rest) / n_bytes

            def size(step: float) -> float:
                report = first if step == self._mode.step else self._packed(step, folder)
                bits = 8 * report.output_bytes / report.n_weights
                self._tell(f"step {step:.5g}: {report.output_bytes:,} bytes, {bits:.3f} bits per weight")
                return report.output_bytes

            # Of every code a bit.
            return self._meet(size, n_bytes, close, lambda found: 8 * found / n_codes, -1, wanted)

    def for_divergence_of(self, kind: str, evaluation: Evaluation) -> Uniform:
        """The mode whose divergence from the model is that of a stock type, or a little less.

        kind: as llama-quantize takes it, made with the calibration's importance. Raises ConfigError.
        """
        common = self._mode.model_dump(include={"pure", "tensors"})
        peer = make_mode({"mode": f"ggml:{kind}", "imatrix": self._mode.calibration, **common}, "like")
        with temporary_folder() as folder:
            wanted = max(
                divergence_of(peer, self._model, folder / "peer.gguf", evaluation, self._threads), NONE
            )
            self._tell(f"{kind}: a divergence of {wanted:.6f}")

            def divergence(step: float) -> float:
                mode = self._mode.model_copy(update={"step": step})
                found = divergence_of(mode, self._model, folder / "candidate.gguf", evaluation, self._threads)
                self._tell(f"step {step:.5g}: {found:.6f}")
                return max(found, NONE)

            # It goes by the square of the step.
            return self._meet(divergence, wanted, AS_GOOD, math.log2, 2, f"as good as {kind}")

    def _meet(
        self,
        measure: Callable[[float], float],
        wanted: float,
        close: float,
        scale: Callable[[float], float],
        slope: float,
        what: str,
    ) -> Uniform:
        """The step that measures `wanted`, or less by a share of `close`.

        scale: makes a measurement change by about `slope` whenever the step doubles.
        """
        self.wanted = wanted
        step, aim = self._mode.step, scale(wanted * (1 - close / 2))
        below = above = None  # the nearest on either side
        for _ in range(TRIES):
            one = Try(step, measure(step))
            self.tries.append(one)
            if one.found > wanted:
                above = one if above is None else min(one, above, key=lambda t: t.found)
            else:
                below = one if below is None else max(one, below, key=lambda t: t.found)
            if below and below.found >= wanted * (1 - close):
                break
            if below and above:
                low, high = scale(below.found), scale(above.found)
                share = min(max((aim - low) / (high - low), 0.1), 0.9)
                step = below.step * (above.step / below.step) ** share
            else:
                step *= 2 ** ((aim - scale(one.found)) / slope)
        if below is None:
            steps = [one.step for one in self.tries]
            raise ConfigError(
                f"{what}: not reachable: {wanted:,.6g} is wanted, {above.found:,.6g} the least that steps "
                f"from {min(steps):.3g} to {max(steps):.3g} give; what is not in {self._mode.calibration} is "
                f"the same with all of them"
            )
        return self._mode.model_copy(update={"step": below.step})

    def _packed(self, step: float, folder: Path) -> PackResult:
        stock, packed = folder / "stock.gguf", folder / "packed.pqz"
        mode = self._mode.model_copy(update={"step": step})
        quantize_model(self._model, stock, mode, threads=self._threads, force=True, progress=self._progress)
        return pack_model(stock, packed, force=True, threads=self._threads, progress=self._progress)

    def _check_reachable(self, n_bytes: int, wanted: str, report: PackResult) -> tuple[int, int]:
        """The number of codes in the file, and the bytes of all else. Raises ConfigError."""
        coded = [use for use in report.streams if use.type == "Q8_0" and use.content == "codes"]
        n_codes = sum(use.n_bytes for use in coded)
        if not n_codes:
            raise ConfigError(f"{wanted}: no tensor of {self._model} gets uniform codes")
        rest = report.output_bytes - sum(use.coded_bytes for use in coded)
        bits = 8 * (n_bytes - rest) / n_codes
        per_weight = 8 / report.n_weights
        if bits < 0.1:
            raise ConfigError(
                f"{wanted}: not reachable: without any codes the file has {rest:,} bytes "
                f"({rest * per_weight:.2f} bits per weight), of metadata and of tensors whose input is not "
                f"in {self._mode.calibration}"
            )
        if bits > LARGEST_CODE_BITS:
            most = rest + LARGEST_CODE_BITS * n_codes / 8
            raise ConfigError(
                f"{wanted}: leaves {bits:.2f} bits for each code, and more than {LARGEST_CODE_BITS:g} do not "
                f"fit into int8: at most {most:,.0f} bytes ({most * per_weight:.2f} bits per weight) are "
                f"reachable; mode q8_0 is for more"
            )
        return n_codes, rest
