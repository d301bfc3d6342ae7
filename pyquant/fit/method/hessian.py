"""Hessian statistics of a model's inputs: made once, and kept in the cache or in a file of the user's."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.gradients.llama_graph import narrow_outputs, why_unknown
from pyquant.calibration.gradients.output_hessians import OtherGraph, why_other
from pyquant.calibration.random_tokens import RANDOM_SHARE
from pyquant.calibration.wanted import Progress
from pyquant.errors import ConfigError, ModelFileError, OutputError, Tell, said_by_system
from pyquant.fit.method.split_text import SplitText
from pyquant.llama.model import Model
from pyquant.machine.caches import cache_folder
from pyquant.machine.environment import build_and_cpu
from pyquant.models.model_file import ModelFile

MOST_BYTES = 1_000_000_000  # of Hessians that are kept; where they take more, none are
PART = 8  # of a model's size, that output-side Hessians may take where no others are kept
DIAGONAL_CHUNKS = 24  # that sums of squares are over where GPTQ collects its Hessians itself
CONTENTS = 4  # of what statistics hold: older ones lack the output-side Hessian of embeddings
OUTPUT_SIDE_CHUNKS = 24  # docs/methods/output_side_hessian.md: more of them gain little


@dataclass(frozen=True)
class Hessian:
    """Statistics that were made or found.

    path: the file. kept: whether it stays when the work is done. output_side: whether it has output-side
    Hessians.
    """

    path: Path
    kept: bool
    output_side: bool


class HessianMaker:
    """Makes statistics where they are not there yet.

    Parameters
    ----------
    model, texts, n_ctx
        What is run over what.
    beside
        A folder that goes away, for statistics that the cache does not take.
    n_bytes
        What they take on disk while they are made; 0: not known.
    diagonal_chunks
        The most chunks that sums of squares are over where no Hessians are kept.
    threads
        None: one for each core.
    progress
        Called with what is done, and its steps done and all.
    tell
        Told what is not as it should be, what applies not, and where statistics are kept.
    """

    def __init__(
        self,
        model: ModelFile,
        texts: SplitText,
        n_ctx: int,
        beside: Path,
        *,
        n_bytes: int = 0,
        diagonal_chunks: int = DIAGONAL_CHUNKS,
        threads: int | None,
        progress: Progress,
        tell: Tell,
    ) -> None:
        self._model, self._texts, self._n_ctx, self._beside = model, texts, n_ctx, beside
        self._n_bytes, self._diagonal_chunks = n_bytes, diagonal_chunks
        self._threads, self._progress, self._tell = threads, progress, tell

    def in_file(self, path: Path, *, output_side: bool) -> Hessian:
        """Take the statistics in a file, or make it. Errors are those of `calibrate_model`."""
        known = given_statistics(path, self._model)
        if known is None:
            return Hessian(path, True, self._calibrate(path, output_side, whole=True))
        used = " ".join(text.sha256 for text in known.origin.texts if text.sha256) if known.origin else ""
        if self._texts.calibration and used != self._texts.key:
            self._tell(f"{path}: made from other texts or chunks, and used as it is; --text chooses stages")
        has_output_hessian = has_output_hessians(known)
        if output_side and not has_output_hessian:
            remedy = f"`pyquant calibrate --output-side {OUTPUT_SIDE_CHUNKS} --process-output` makes them"
            self._leave_out(why_unknown(self._model) or f"{path} has none; {remedy}")
        return Hessian(path, True, has_output_hessian)

    def in_cache(self, *, output_side: bool, whole: bool, exact: bool = False) -> Hessian:
        """Take the statistics in the cache, or make them: without `whole` no Hessians of what enters.

        exact: whether those that hold more do not serve, as a mix's types depend on it.
        Errors are those of `calibrate_model`.
        """
        if (cache := cache_folder()) is not None:
            # Statistics with output-side Hessians serve where none are needed, too.
            serving = [output_side] if output_side or exact else [False, True]
            keys = [self._key(wanted, whole) for wanted in serving]
            own, *others = (cache / _name(key) for key in keys)
            try:
                with _locked(own):
                    for path in (own, *others):
                        if (has_output_hessian := self._usable(path)) is not None:
                            if output_side and not has_output_hessian and (why := self._why_no_gradients()):
                                self._leave_out(why)
                            return Hessian(path, True, has_output_hessian)
                    self._check_room(cache)
                    has_output_hessian = self._calibrate(own, output_side, whole=whole)
                self._tell(f"Hessian statistics: {own.stat().st_size / 1e6:,.0f} MB in {own}")
                return Hessian(own, True, has_output_hessian)
            except (OSError, OutputError) as error:
                said = said_by_system(error, cache) if isinstance(error, OSError) else error
                self._tell(f"Hessian statistics are not kept in the cache (PYQUANT_CACHE): {said}")
        path, called = self._beside / "hessian.gguf", _name(self._key(output_side, whole))
        return Hessian(path, False, self._calibrate(path, output_side, whole=whole, called=called))

    def _check_room(self, cache: Path) -> None:
        """Raise OutputError where the cache lacks room: it would be found when gradients are done."""
        if (free := shutil.disk_usage(cache).free) < self._n_bytes:
            raise OutputError(f"{cache}: they take {self._n_bytes:,} bytes there, {free:,} are free")

    def _calibrate(self, path: Path, output_side: bool, *, whole: bool, called: Path | None = None) -> bool:
        """Write the statistics; returns whether they have output-side Hessians: not of all families."""
        options: dict[str, Any] = {
            "n_ctx": self._n_ctx, "n_chunks": self._texts.n_chunks, "process_output": True,
            "threads": self._threads, "progress": self._progress, "force": True, "imatrix_only": not whole,
            "diagonal_chunks": self._diagonal_chunks, "called": called, "tell": self._tell,
        }  # fmt: skip
        calibrate = partial(calibrate_model, self._model, self._texts.texts, path, **options)
        if output_side and (why := why_unknown(self._model)):
            self._leave_out(why)
        elif output_side:
            matrices = output_side_matrices(self._model, whole=whole)
            try:
                calibrate(output_side=OUTPUT_SIDE_CHUNKS, output_side_of=matrices)
            except OtherGraph as error:
                self._leave_out(str(error))
            else:
                return True
        calibrate()
        return False

    def _leave_out(self, why: str) -> None:
        self._tell(f"output-side Hessian: left out: {why}")

    def _why_no_gradients(self) -> str | None:
        if why := why_unknown(self._model):
            return why
        with Model(self._model) as running:
            return why_other(running, self._texts.held_out, self._threads)

    def _key(self, output_side: bool, whole: bool) -> str:
        made_of = {
            "model": self._model.sha256(),
            "texts": self._texts.key,
            "n_ctx": self._n_ctx,
            "random": RANDOM_SHARE,
            "output_side": OUTPUT_SIDE_CHUNKS if output_side else None,
            "whole": whole,
            "diagonal_chunks": self._diagonal_chunks,
            "contents": CONTENTS,
            "made_by": build_and_cpu(),
        }
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:24]

    def _usable(self, path: Path) -> bool | None:
        """Say whether statistics have output-side Hessians; None where none are there, or damaged ones."""
        if not path.exists():
            return None
        try:
            known = Calibration.read(path)
            known.check_model(self._model, self._model.sha256())
            known.check_rows()
        except ModelFileError as error:
            self._tell(f"{error}: the cache's are made again")
            path.unlink(missing_ok=True)
            return None
        return has_output_hessians(known)


def output_side_matrices(model: ModelFile, *, whole: bool) -> list[str]:
    """List the matrices that output-side Hessians are made of.

    whole: whether Hessians of what enters are kept: then all, else as many as fit into `MOST_BYTES`, or into
    a part of a large model's size.
    """
    return narrow_outputs(model, sys.maxsize if whole else max(MOST_BYTES, model.n_bytes // PART))


def say_not_finite(statistics: Path, tell: Tell) -> None:
    """Tell which matrices no statistics are of, as what enters them is not finite."""
    if names := Calibration.read(statistics).not_finite:
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        tell(f"{names[0]}{others}: what enters is not finite, or too large: rounded as without an imatrix")


def given_statistics(path: Path | None, model: ModelFile) -> Calibration | None:
    """Read the statistics in a user's file; None: it is still to be made.

    Raises ModelFileError: they are of another model. ConfigError: it is an importance matrix.
    """
    if path is None or not path.exists():
        return None
    known = Calibration.read(path)
    known.check_model(model, model.sha256())
    if known.origin is None:
        raise ConfigError(f"{path}: is an importance matrix, and GPTQ needs Hessian statistics")
    return known


def has_output_hessians(known: Calibration) -> bool:
    """Say whether statistics have output-side Hessians."""
    return any(known.has_output_hessian(name) for name in known.matrices)


def _name(key: str) -> Path:
    """Name statistics in the cache; those that it does not take are called alike in files made by them."""
    return Path("hessian") / f"{key}.gguf"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process makes the file. Raises OSError where the folder cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
