"""Finding the step of mode `uniform` that makes a file of a wanted size, or as good as a stock type."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyquant.compare import compare_models
from pyquant.container.pack import pack_model
from pyquant.errors import ConfigError
from pyquant.model_file import ModelFile
from pyquant.quantize import quantize_model
from pyquant.schemes import Mode
from pyquant.schemes.ggml_type import GgmlType
from pyquant.schemes.uniform import Uniform

START = 0.005  # a step that makes codes of about 4 bits
TRIES = 8
CLOSE = 0.003  # below a wanted size, as a share of it
AS_GOOD = 0.03  # below a wanted divergence, as a share of it
LARGEST_STEP = 1e3  # at which every code is 0
LARGEST_CODE_BITS = 6.5  # of a step that leaves no code outside of int8, with some room

# Told what came out of every step that is tried.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Evaluation:
    """What a divergence is measured on. text: a file."""

    text: Path
    n_ctx: int
    n_chunks: int | None


class StepSearch:
    """Tries steps on a model: quantizes, packs, measures; all in a folder for temporary files.

    mode: uniform, with any step to begin with.
    """

    def __init__(self, model: str | os.PathLike[str], mode: Uniform, tell: Tell = lambda line: None) -> None:
        self._model = Path(model)
        self._mode = mode
        self._tell = tell
        self._n_weights = ModelFile(model).n_weights

    def for_bits(self, bits: float) -> Uniform:
        """The mode whose packed file has at most this many bits per weight of the model, embeddings
        and metadata included. Raises ConfigError, saying what is reachable."""
        return self.for_size(int(bits * self._n_weights / 8), f"{bits:g} bits per weight")

    def for_size(self, n_bytes: int, wanted: str | None = None) -> Uniform:
        """The mode whose packed file has at most this size. Raises ConfigError."""
        wanted = wanted or f"{n_bytes:,} bytes"
        step, best = self._mode.step, None
        with tempfile.TemporaryDirectory(prefix="pyquant-") as folder:
            smallest = self._packed(LARGEST_STEP, folder)
            if n_bytes < smallest:
                raise ConfigError(
                    f"{wanted}: not reachable: tensors whose input is not in {self._mode.calibration} "
                    f"and metadata alone take {smallest:,} bytes ({8 * smallest / self._n_weights:.2f} per weight)"
                )
            bits = 8 * (n_bytes - smallest) / self._n_coded
            if bits > LARGEST_CODE_BITS:
                raise ConfigError(
                    f"{wanted}: leaves {bits:.2f} bits for each code; int8 has room for "
                    f"{LARGEST_CODE_BITS:g}: q8_0 is the mode for that"
                )
            for _ in range(TRIES):
                size = self._packed(step, folder)
                self._tell(f"step {step:.5g}: {size:,} bytes, {wanted} wanted")
                if size <= n_bytes and (best is None or step < best):
                    best = step
                if n_bytes * (1 - CLOSE) <= size <= n_bytes:
                    break
                # Halving the step costs every code a bit.
                step *= 2 ** (8 * (size - n_bytes * (1 - CLOSE / 2)) / self._n_coded)
        if best is None:
            raise ConfigError(f"{wanted}: no step found; the nearest, {step:.5g}, makes {size:,} bytes")
        return self._mode.model_copy(update={"step": best})

    def for_divergence_of(self, kind: str, evaluation: Evaluation) -> Uniform:
        """The mode whose divergence from the model is that of a stock type, or a little less.

        kind: as llama-quantize takes it, made with the calibration's importance. Raises ConfigError.
        """
        with tempfile.TemporaryDirectory(prefix="pyquant-") as folder:
            peer = Path(folder) / "peer.gguf"
            like = GgmlType(
                mode=f"ggml:{kind}", pure=self._mode.pure, tensors=self._mode.tensors,
                threads=self._mode.threads, imatrix=self._mode.calibration,
            )  # fmt: skip
            wanted = self._divergence(like, peer, evaluation)
            self._tell(f"{kind}: a divergence of {wanted:.6f}")
            step, best = self._mode.step, None
            for _ in range(TRIES):
                candidate = self._mode.model_copy(update={"step": step})
                found = self._divergence(candidate, Path(folder) / "candidate.gguf", evaluation)
                self._tell(f"step {step:.5g}: {found:.6f}")
                if found <= wanted and (best is None or step > best):
                    best = step
                if wanted * (1 - AS_GOOD) <= found <= wanted:
                    break
                step *= math.sqrt(
                    wanted * (1 - AS_GOOD / 2) / max(found, 1e-12)
                )  # divergence goes by its square
        if best is None:
            raise ConfigError(f"like: no step is as good as {kind}, whose divergence is {wanted:.6f}")
        return self._mode.model_copy(update={"step": best})

    def _packed(self, step: float, folder: str) -> int:
        stock, packed = Path(folder) / "stock.gguf", Path(folder) / "packed.pqz"
        mode = self._mode.model_copy(update={"step": step})
        report = quantize_model(self._model, stock, mode, force=True)
        self._n_coded = sum(t.n_weights for t in report.tensors if t.type == "Q8_0" and t.quantized)
        return pack_model(stock, packed, force=True, threads=mode.threads).output_bytes

    def _divergence(self, mode: Mode, path: Path, evaluation: Evaluation) -> float:
        quantize_model(self._model, path, mode, force=True)
        apart = compare_models(
            self._model, [path], evaluation.text, n_ctx=evaluation.n_ctx, n_chunks=evaluation.n_chunks,
            threads=mode.threads,
        )  # fmt: skip
        return apart.to_json()["candidates"][0]["kld"]["mean"]
