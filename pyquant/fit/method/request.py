"""A request for a file of a type or a size, and checks of it before work begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError, Tell, nearest
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.comparison import Comparison
from pyquant.files.text import read_texts
from pyquant.fit.evaluation import Evaluation
from pyquant.fit.method.stages import BY_GPTQ, EFFORTS, HIGH, METHODS, Progress
from pyquant.fit.mixtures import WantedSize
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.rounding.shards import Split
from pyquant.schemes import Mode

EVALUATION = "evaluation"  # what progress calls it


@dataclass(frozen=True)
class Request:
    """A file of a type or a size, made by a method. Attributes are arguments of `quantize`, but for three.

    Attributes
    ----------
    trains_scales
        Whether scales are trained when all is rounded.
    name
        llama-quantize's type: of a size, the largest that fits, or the smallest.
    stock
        The mode in which llama-quantize makes it.
    """

    model: ModelFile
    output: Path
    type: str | WantedSize
    method: str
    trains_scales: bool
    name: str
    stock: Mode
    pure: bool
    hessian: Path | None
    evaluate: Evaluation | None
    split: Split | None
    memory: int | None
    threads: int | None
    force: bool
    progress: Progress
    tell: Tell

    @property
    def mixed(self) -> WantedSize | None:
        """The size that types are mixed for; None: they are those of `name`."""
        return self.type if isinstance(self.type, WantedSize) and self.method in BY_GPTQ else None

    def compare(self, files: list[Path]) -> Comparison | None:
        """Measure the KLD of files on the text of the evaluation; None: there is to be none."""
        if self.evaluate is None:
            return None
        (text,) = read_texts(self.evaluate.text)
        return compare_models(
            self.model, files, text, n_ctx=self.evaluate.n_ctx, n_chunks=self.evaluate.n_chunks,
            threads=self.threads, progress=lambda done, total: self.progress(EVALUATION, done, total),
        )  # fmt: skip


def check_method(
    method: str, effort: str, given: dict[str, Any], imatrix: object, memory: int | None, requantize: bool
) -> None:
    if method not in METHODS:
        hint = f", did you mean {close}?" if (close := nearest(method, METHODS)) else ";"
        raise ConfigError(f"method: {method!r} is not known{hint} choices: {', '.join(METHODS)}")
    if method == "rtn":
        if names := [f"--{name}" for name, value in given.items() if value is not None]:
            raise ConfigError(f"{', '.join(names)}: of methods that calibrate; add --method gptq or best")
    elif imatrix is not None:
        raise ConfigError(f"--imatrix: is for method rtn; {method} makes its own statistics from --text")
    elif requantize:
        raise ConfigError(f"--requantize: is for method rtn; `pyquant dequantize` makes a model for {method}")
    if effort not in EFFORTS:
        raise ConfigError(f"effort: {effort!r} is not known; choices: {', '.join(EFFORTS)}")
    if effort == HIGH and method not in BY_GPTQ:
        raise ConfigError("--effort: is for methods gptq and best, which train scales with a high one")
    if memory is not None and method not in BY_GPTQ:
        raise ConfigError("--memory: is for methods gptq and best, which keep activations of tokens")
    if given["hessian"] is not None and method not in BY_GPTQ:
        raise ConfigError(f"--hessian: is for methods gptq and best; {method} has no use for Hessians")


def check_evaluation(model: ModelFile, evaluate: Evaluation) -> int:
    """Refuse what a file cannot be evaluated on, before work begins. Returns the tokens it is evaluated on.

    Raises ConfigError: several texts, or chunks longer than the model takes. TextError: it is too short.
    NotCausal: the model is no decoder.
    """
    texts = read_texts(evaluate.text)
    if len(texts) != 1:
        raise ConfigError("evaluate: takes one text; `compare_models` measures a file on each of several")
    with Model(model) as running:
        with running.context(n_ctx=evaluate.n_ctx, n_batch=1, n_ubatch=1, threads=1):
            pass
        return cut(running, texts[0], n_ctx=evaluate.n_ctx, n_chunks=evaluate.n_chunks).tokens.size
