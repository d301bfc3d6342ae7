"""Find the step of mode `ecsq` that makes a file of a wanted size, or as good as a stock type."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError, Tell
from pyquant.files.temporary import temporary_folder
from pyquant.fit.evaluation import Evaluation
from pyquant.fit.reachable import check_before, parts_of
from pyquant.fit.target import Target
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.tensor_reader import Progress
from pyquant.rounding.equalize.equalize_model import equalized
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.plan import Plan
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import PqzResult, quantize_to_pqz
from pyquant.schemes import Mode
from pyquant.schemes.ecsq import Ecsq
from pyquant.schemes.settings import make_mode

START = 0.005  # a step that makes codes of about 4 bits
TRIES = 12
SAME = 2**-11  # steps that differ by less of it, as a share, make the same fp16
CLOSE = 0.0015  # below a wanted size, as a share of what codes take of it
AS_GOOD = 0.03  # below a wanted KLD, as a share of it
NO_KLD = 1e-12


@dataclass(frozen=True)
class Try:
    """A step, and the size in bytes or the KLD in nats that it gave."""

    step: float
    measured: float


class StepSearch:
    """Try steps on a model: quantize, pack, measure; all in a folder for temporary files.

    Parameters
    ----------
    model
        A path or a ModelFile.
    mode
        Mode `ecsq`, with the step to begin with.
    threads
        None: all cores.
    tell
        Called with a line that says what came out of every step.
    progress
        Called while a step is tried.

    Attributes
    ----------
    tries : list of Try
        All that were made, in order.
    wanted : float or None
        What they were for, in the same unit.
    peer_bytes : int or None
        Size of the file of the type that the result is to be as good as.
    code_bits : float or None
        Bits that a wanted size leaves for each code.
    """

    def __init__(
        self,
        model: AnyModel,
        mode: Ecsq,
        *,
        threads: int | None = None,
        tell: Tell = lambda line: None,
        progress: Progress | None = None,
    ) -> None:
        self._given = self._model, self._mode = open_model(model), mode  # while equalized, the latter are
        self._threads = threads
        self._tell = tell
        self._progress = progress
        self.tries: list[Try] = []
        self.wanted: float | None = None
        self.peer_bytes: int | None = None
        self.code_bits: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the search as `pyquant quantize --json` prints it, under `search`."""
        tries = [{"step": attempt.step, "found": attempt.measured} for attempt in self.tries]
        sizes = {"peer_bytes": self.peer_bytes, "code_bits": self.code_bits}
        return {"wanted": self.wanted, **sizes, "tries": tries}

    def find(self, target: Target, evaluation: Evaluation | None = None) -> Ecsq:
        """Find the mode that reaches a target.

        Parameters
        ----------
        target
            See `pyquant.fit.target`.
        evaluation
            What KLDs are measured on; for `like`.

        Raises
        ------
        ConfigError
            It is not reachable; the message says what is.
        PyquantError
            What quantizing and measuring raise.
        """
        if self._mode.equalize:
            try:
                with equalized(*self._given, self._threads) as (self._model, self._mode):  # for all tries
                    found = self.find(target, evaluation)
            finally:
                self._model, self._mode = self._given
            return self._mode.model_copy(update={"step": found.step})
        wanted = str(target)
        match target.key:
            case "like":
                if evaluation is None:
                    raise ConfigError("like: needs a text, on which KLD is measured")
                return self._for_kld_of(target.value, evaluation, wanted)
            case "step":
                return self._mode.model_copy(update={"step": target.value})
            case "code_bits":
                return self._for_code_bits(target.value, wanted)
            case "target_bpw":
                return self._for_size(int(target.value * self._model.n_weights / 8), wanted)
            case _:
                return self._for_size(target.value, wanted)

    def _for_code_bits(self, bits: float, wanted: str) -> Ecsq:
        """Find the step for bits of the quantized tensors; other tensors and metadata do not count."""
        with temporary_folder() as folder:
            first = self._try(self._mode.step, folder)
            changed = [tensor for tensor in first.quantized.tensors if tensor.quantized]
            types = {tensor.type for tensor in changed}
            coded = sum(use.coded_bytes for use in first.pqz.streams if use.type in types)
            n_weights = sum(tensor.n_weights for tensor in changed)
            n_bytes = int(first.pqz.output_bytes - coded + bits * n_weights / 8)
            return self._meet_size(n_bytes, wanted, self._plan(), first, folder)

    def _for_kld_of(self, type_name: str, evaluation: Evaluation, wanted: str) -> Ecsq:
        """Find the step for the KLD of a type, which is made with the calibration's importance."""
        given, mode = self._given
        common = mode.model_dump(include={"pure", "tensors"})
        peer = make_mode({"mode": f"ggml:{type_name}", "imatrix": mode.hessian, **common}, "like")
        baseline = evaluation.baseline(given, threads=self._threads)
        with baseline, temporary_folder() as folder:

            def kld(mode: Mode, model: ModelFile, path: Path) -> float:
                quantize_model(model, path, mode, threads=self._threads, force=True)
                return max(baseline.kld_of(path).kld.mean, NO_KLD)

            def of_step(step: float) -> float:
                tried = self._mode.model_copy(update={"step": step})
                measured = kld(tried, self._model, folder / "candidate.gguf")
                self._tell(f"step {step:.5g}: {measured:.6f}")
                return measured

            its = kld(peer, given, folder / "peer.gguf")
            self.peer_bytes = (folder / "peer.gguf").stat().st_size
            self._tell(f"{type_name}: a KLD of {its:.6f}")
            # It goes by the square of the step.
            return self._meet(of_step, its, AS_GOOD, math.log2, 2, wanted, "{:.6g} nats".format)

    def _for_size(self, n_bytes: int, wanted: str) -> Ecsq:
        plan = self._plan()
        with temporary_folder() as folder:
            check_before(plan, n_bytes, wanted, folder, self._threads)
            return self._meet_size(n_bytes, wanted, plan, self._try(self._mode.step, folder), folder)

    def _meet_size(self, n_bytes: int, wanted: str, plan: Plan, first: PqzResult, folder: Path) -> Ecsq:
        """Find the step for a size; first: what the step to begin with gave."""
        parts = parts_of(plan, first.pqz, wanted)
        parts.check(n_bytes, wanted)
        self.code_bits = parts.code_bits(n_bytes)
        self._tell(
            f"{wanted}: {self.code_bits:.2f} bits are left for each code, besides "
            f"{parts.in_bits(parts.rest_bytes)} of metadata and tensors that no step changes"
        )
        close = CLOSE * (n_bytes - parts.rest_bytes) / n_bytes

        def size(step: float) -> float:
            result = (first if step == self._mode.step else self._try(step, folder)).pqz
            bits = 8 * result.output_bytes / result.n_weights
            self._tell(f"step {step:.5g}: {result.output_bytes:,} bytes, {bits:.3f} bits per weight")
            return result.output_bytes

        # Every code may take a bit.
        return self._meet(
            size, n_bytes, close, lambda measured: 8 * measured / parts.n_codes, -1, wanted, parts.in_bits
        )

    def _meet(
        self,
        measure: Callable[[float], float],
        wanted: float,
        close: float,
        scale: Callable[[float], float],
        slope: float,
        what: str,
        show: Callable[[float], str],
    ) -> Ecsq:
        """Find the step that measures `wanted`, or less by a share of `close`.

        scale: makes a measurement change by about `slope` whenever the step doubles. what: that the user
        wanted. show: a measurement with its unit.
        """
        self.wanted = wanted
        step, aim = self._mode.step, scale(wanted * (1 - close / 2))
        best: Try | None = None  # of those that are no more than wanted
        below: Try | None = None  # the last on either side: where what is wanted lies between
        above: Try | None = None
        for _ in range(TRIES):
            attempt = Try(step, measure(step))
            self.tries.append(attempt)
            if attempt.measured > wanted:
                above = attempt
            else:
                below = attempt
                best = attempt if best is None else max(attempt, best, key=lambda t: t.measured)
            if best and best.measured >= wanted * (1 - close):
                break
            if below and above:
                if abs(above.step / below.step - 1) < SAME:
                    break
                low, high = scale(below.measured), scale(above.measured)
                share = min(max((aim - low) / (high - low), 0.1), 0.9)
                step = below.step * (above.step / below.step) ** share
            else:
                step *= 2 ** ((aim - scale(attempt.measured)) / slope)
        if best is None:
            steps = [attempt.step for attempt in self.tries]
            least = min(attempt.measured for attempt in self.tries)
            raise ConfigError(
                f"{what}: not reachable: {show(wanted)} is wanted, {show(least)} the least that steps from "
                f"{min(steps):.3g} to {max(steps):.3g} give; what is not in {self._mode.hessian} is the "
                f"same with all of them"
            )
        return self._mode.model_copy(update={"step": best.step})

    def _plan(self) -> Plan:
        return make_plan(self._model, self._mode, threads=self._threads)

    def _try(self, step: float, folder: Path) -> PqzResult:
        mode = self._mode.model_copy(update={"step": step})
        options: dict[str, Any] = {"threads": self._threads, "force": True, "progress": self._progress}
        return quantize_to_pqz(self._model, folder / "tried.pqz", mode, **options)
