"""Hessian statistics of a model's inputs: made once, and kept in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyquant import _core
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.collect import Progress
from pyquant.errors import ConfigError, ModelFileError, OutputError
from pyquant.fit.method.split_text import SplitText
from pyquant.machine.caches import cache_folder
from pyquant.models.model_file import ModelFile

GRADIENT_CHUNKS = 24  # docs/compensation.md: more of them gain little


class Hessian:
    """Makes statistics where they are not there yet.

    Parameters
    ----------
    model, texts, n_ctx
        What is run over what.
    file
        Where statistics are kept; None: in the cache, or, where there is none, in `beside`.
    beside
        A folder that goes away.
    tell
        Told what is not as it should be, and what applies not.
    """

    def __init__(
        self,
        model: ModelFile,
        texts: SplitText,
        n_ctx: int,
        file: Path | None,
        beside: Path,
        tell: Callable[[str], None],
    ) -> None:
        self._model, self._texts, self._n_ctx = model, texts, n_ctx
        self._file, self._beside, self._tell = file, beside, tell

    def make(self, *, gradients: bool, threads: int | None, progress: Progress | None) -> Path:
        """Return the file, which is made if it is not there. Errors are those of `calibrate_model`."""
        wanted = GRADIENT_CHUNKS if gradients else None
        path = self._file or self._place(wanted)
        if self._usable(path):
            return path
        options: dict[str, Any] = {
            "n_ctx": self._n_ctx, "n_chunks": self._texts.n_chunks, "process_output": True,
            "threads": threads, "progress": progress, "force": True,
        }  # fmt: skip
        try:
            calibrate_model(self._model, self._texts.texts, path, gradients=wanted, **options)
        except ConfigError as error:
            if not wanted:
                raise
            self._tell(f"output-side Hessian: left out: {error}")
            calibrate_model(self._model, self._texts.texts, path, **options)
        return path

    def _place(self, gradients: int | None) -> Path:
        made_of = {
            "model": self._model.sha256(),
            "texts": self._texts.key,
            "n_ctx": self._n_ctx,
            "gradients": gradients,
            "pyquant": _core.build_info()["pyquant"],
        }
        name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:24]
        if (cache := cache_folder()) is not None:
            try:
                (cache / "hessian").mkdir(parents=True, exist_ok=True)
                return cache / "hessian" / f"{name}.gguf"
            except OSError as error:
                self._tell(f"{cache}: {error.strerror}: statistics are not kept")
        return self._beside / f"{name}.gguf"

    def _usable(self, path: Path) -> bool:
        if not path.exists():
            return False
        try:
            Calibration.read(path).check_model(self._model, self._model.sha256())
        except (ModelFileError, OutputError) as error:
            if path == self._file:
                raise
            self._tell(f"{error}: made again")
            return False
        return True
