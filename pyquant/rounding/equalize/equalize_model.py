"""Write a model with its channels at scales that are easier to quantize; it computes the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.rescale import rescale_stats
from pyquant.errors import ModelFileError, Tell
from pyquant.evaluate.baseline import BaseRun
from pyquant.files.output_file import OutputFile, check_apart, check_output
from pyquant.files.temporary import temporary_folder
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model
from pyquant.models.conversion import Conversion, Converted
from pyquant.models.header import EQUALIZED_FROM, LAYOUT_KEYS, copied_header
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.progress import Progress
from pyquant.models.tensor import UNQUANTIZED, file_bytes
from pyquant.models.tensor_reader import TensorReader
from pyquant.rounding.equalize.exponents import exponents_of
from pyquant.rounding.equalize.links import Link, links_of
from pyquant.rounding.equalize.rescaling import Rescaling
from pyquant.schemes import Mode

AnyMode = TypeVar("AnyMode", bound=Mode)


TRIED = 64  # random tokens that both models are run over
SAME = 1e-4  # nats: a model that computes something else is tenths away; F16 that gets too small, millionths


@dataclass(frozen=True, kw_only=True)
class EqualizeResult(Converted):
    """Result of equalizing.

    Attributes
    ----------
    hessian
        The Hessian file of `output`; None if none was wanted.
    n_links
        Groups of channels that may have other scales.
    n_channels, n_scaled
        Channels of these, and how many have another scale now.
    rounded
        Root mean square of what rounding changed in scaled tensors, relative to their weights: 0 where no
        number left the range of its type.
    left_out
        Kinds of matrices whose channels keep their scales, as the model computes something else with others.
    kld
        What the outputs of both models differ by, on some random tokens: mean KLD in nats.
    """

    SCHEMA = "pyquant.equalize/1"

    hessian: str | None
    n_links: int
    n_channels: int
    n_scaled: int
    rounded: float
    left_out: list[str]
    kld: float


Scaled: TypeAlias = tuple[Link, NDArray[np.int8]]  # a link, and the exponents of its channels


@dataclass(frozen=True)
class Attempt:
    """A model that was written with some links scaled. The attributes are those of `EqualizeResult`."""

    links: list[Scaled]
    rescaling: Rescaling
    rounded: float
    kld: float

    @property
    def same(self) -> bool:
        """Say whether it computes the same; not where the KLD is no number."""
        return self.kld <= SAME


def equalize_model(
    source: AnyModel,
    hessian: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    hessian_out: str | os.PathLike[str] | None = None,
    hessian_called: Path | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> EqualizeResult:
    """Write a model whose channels have other scales, each a power of two, and which computes the same.

    Both models are run over some random tokens before the file gets its name. Where they differ, links of
    each kind are tried alone, and those left out that the model computes otherwise than its tensors' names
    say.

    Parameters
    ----------
    source
        A path, or an opened model: F32, F16 or BF16.
    hessian
        What `pyquant calibrate` wrote of it, or an importance matrix.
    output
        The GGUF to write. It appears complete or not at all.
    hessian_out
        Where to write what `hessian` is of `output`; None: nowhere.
    hessian_called
        What quantized models are to call `hessian_out`, if it is temporary; None: by its path.
    threads
        None: one for each core. The file does not depend on it.
    force
        Replace existing files.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        The model cannot be read, is quantized, or computes something else with every kind of links; or the
        calibration is of another model.
    ConfigError
        `hessian_out` is wanted of an importance matrix.
    OutputError
        A file cannot be written.
    """
    model, output = open_model(source), Path(output)
    work = Conversion([*model.paths, Path(hessian)], output, force=force)
    if hessian_out:
        check_output(Path(hessian_out), sources=work.sources, force=force)
        check_apart(Path(hessian_out), output)
    known = Calibration.read(hessian)
    known.check_model(model, model.sha256())
    links = [(link, found) for link in links_of(model) if (found := exponents_of(link, known)) is not None]
    header = copied_header(model.header, model.tensors, LAYOUT_KEYS, {EQUALIZED_FROM: model.sha256()})
    n_bytes = file_bytes(header)
    with OutputFile(output, n_bytes, sources=model.paths, force=force) as file:

        def attempt(links: list[Scaled]) -> Attempt:
            rescaling = Rescaling()
            for link, exponents in links:
                rescaling.add(link, exponents)
            error = _write(model, rescaling, header, file, threads, progress)
            return Attempt(links, rescaling, error, _kld(model, file.partial, threads))

        done = attempt(links)
        unlike: list[str] = []
        if not done.same:
            kinds = dict.fromkeys(link.kind for link, _ in links)
            unlike = [kind for kind in kinds if not attempt([s for s in links if s[0].kind == kind]).same]
            kept = [scaled for scaled in links if scaled[0].kind not in unlike]
            if not kept or not unlike or not (done := attempt(kept)).same:
                raise ModelFileError(
                    f"{model.path}: cannot be equalized: with other scales of channels a model of "
                    f"architecture {model.architecture} computes something else (a KLD of {done.kld:.3g})"
                )
        if hessian_out:
            sha256 = ModelFile(file.partial).sha256()
            inputs = done.rescaling.of_inputs(known.matrices)
            rescale_stats(
                hessian, hessian_out, inputs, done.rescaling.rows, sha256, called=hessian_called, force=force
            )
        file.commit()
    return work.result(
        EqualizeResult,
        source_bytes=model.n_bytes,
        output_bytes=n_bytes,
        hessian=str(hessian_out) if hessian_out else None,
        n_links=len(done.links),
        n_channels=sum(exponents.size for _, exponents in done.links),
        n_scaled=sum(int(np.count_nonzero(exponents)) for _, exponents in done.links),
        rounded=done.rounded,
        left_out=unlike,
        kld=done.kld,
    )


@contextmanager
def equalized(
    model: ModelFile, mode: AnyMode, threads: int | None, tell: Tell | None = None
) -> Iterator[tuple[ModelFile, AnyMode]]:
    """Give the model and the mode that a mode stands for: with `equalize`, temporary files of both.

    tell: told which links are left out.
    Errors are those of `equalize_model`.
    """
    if not mode.equalize:
        yield model, mode
        return
    assert mode.hessian is not None
    with equalized_files(model, mode.hessian, threads, tell) as (scaled, stats):
        yield scaled, mode.model_copy(update={"hessian": stats, "equalize": False})


@contextmanager
def equalized_files(
    model: ModelFile, hessian: Path, threads: int | None, tell: Tell | None = None
) -> Iterator[tuple[ModelFile, Path]]:
    """Give an equalized model and its HESSIAN, in temporary files. Errors are those of `equalize_model`."""
    with temporary_folder() as folder:
        path, stats, called = folder / "equalized.gguf", folder / "stats", Path(hessian)
        done = equalize_model(model, hessian, path, hessian_out=stats, hessian_called=called, threads=threads)
        if done.left_out and tell:
            kinds = ", ".join(done.left_out)
            tell(f"not equalized: channels that enter {kinds}, as other scales of them change the model")
        yield ModelFile(path), stats


def _write(
    model: ModelFile,
    rescaling: Rescaling,
    header: _core.Gguf,
    file: OutputFile,
    threads: int | None,
    progress: Progress | None,
) -> float:
    """Write all tensors; return what rounding changed in scaled ones, relative to them."""
    begin = header.header()
    offsets = {name: len(begin) + offset for name, _, _, offset, _ in header.tensors()}
    squared_error = squared_weight = 0.0
    file.write(begin, 0)
    with TensorReader(model, model.tensors, threads, progress) as reader:
        for tensor in model.tensors:
            where = {"out_file": file.fileno(), "out_offset": offsets[tensor.name]}
            if not rescaling.changes(tensor.name):
                reader.run(tensor, check=True, **where)
                continue
            if tensor.type not in UNQUANTIZED:
                raise ModelFileError(
                    f"{tensor.path}: tensor {tensor.name!r} is {tensor.type.name}, and only floats can be "
                    f"scaled; `pyquant dequantize` makes floats of it"
                )
            done = reader.run(
                tensor, weights=rescaling.scaled(tensor), measure=True,
                target=_core.ggml_encoder(int(tensor.type)), **where,
            )  # fmt: skip
            squared_error += done.squared_error
            squared_weight += done.squared_weight
    return float(np.sqrt(squared_error / squared_weight)) if squared_weight else 0.0


def _kld(base: ModelFile, other: Path, threads: int | None) -> float:
    """Run two models over the same random tokens: the mean KLD of their outputs, in nats."""
    with Model(base) as model:
        ordinary = model.vocabulary.ordinary_tokens()
        n = min(TRIED, model.n_ctx_train)
        chunks = Chunks(np.random.default_rng(0).choice(ordinary, (1, n)).astype(np.int32))
        with BaseRun(model, chunks, threads, _unseen) as run, Model(other) as scaled:
            return float(run.score(scaled, _unseen).kld.mean())


def _unseen(n_tokens: int) -> None:
    """Take progress that nobody is shown."""
