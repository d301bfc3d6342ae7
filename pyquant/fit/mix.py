"""Find the types of a model's tensors that give the least KLD at a size: a recipe.

What is predicted for a choice of types is the sum over tensors of sensitivity times error of outputs. The
file of the first round is made, and its KLD is measured. Where sensitivities come of a few runs, what each
kind of tensor adds to it corrects them for a second round. The best stock mixture that fits, rounded alike,
is measured too, and the result is the best of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyquant.calibration.calibration import Calibration
from pyquant.evaluate.baseline import Baseline
from pyquant.evaluate.speed import ModelSpeed, measure_speed
from pyquant.files.temporary import temporary_folder
from pyquant.fit.contributions import corrections, measure_contributions
from pyquant.fit.mix_result import Mix, Trial
from pyquant.fit.mixtures import (
    FLOORED,
    Files,
    WantedSize,
    base_of,
    bits_of,
    check_reachable,
    recipe_of,
    usable_at,
)
from pyquant.fit.solver import Solver, Types
from pyquant.fit.type_errors import measure_type_errors
from pyquant.models.header import EQUALIZED_FROM
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS, kind_of
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.recipe_file import Choice, Recipe
from pyquant.schemes.settings import make_mode

PROMPT, TOKENS, ROUNDS = 128, 32, 3  # of the measurement of speed

# (what is done, steps done, all steps)
Progress = Callable[[str, int, int], None]


@dataclass
class Mixer:
    """Finds mixtures of a model at sizes; errors and sensitivities are kept between them.

    Parameters
    ----------
    sensitivity
        How much KLD errors in each tensor cause; tensors of which it is None keep the type of the
        nearest stock mixture.
    allowed
        Types that may be used; None: all that GPTQ rounds to.
    seconds
        What each part of the work took so far.
    errors
        What types do to tensors, as far as it was measured.
    corrects
        Whether sensitivities are corrected for a second round.
    output_side
        Whether files will be rounded with output-side Hessians, where the calibration has them.

    Attributes
    ----------
    baseline
        The model's, on the text that KLDs are measured on; `check` needs none.
    """

    model: ModelFile
    calibration: Calibration
    sensitivity: Callable[[str], float | None]
    allowed: Sequence[Type] | None = None
    threads: int | None = None
    progress: Progress = lambda what, done, total: None
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, dict[Type, float]] = field(default_factory=dict)
    corrects: bool = True
    output_side: bool = True
    baseline: Baseline = field(init=False)

    def find(self, target: WantedSize) -> Mix:
        """Find the mixture of the least KLD.

        Raises ConfigError: the size is not reachable, or no type fits a tensor.
        """
        with temporary_folder() as folder:
            return _Search(self, Files(self.model, self.calibration.path, folder), target, folder).run()

    def check(self, target: WantedSize) -> None:
        """Refuse a size that is not reachable, before sensitivities or errors are measured.

        Raises ConfigError.
        """
        with temporary_folder() as folder:
            _Search(self, Files(self.model, self.calibration.path, folder), target, folder).refuse()

    def measure_errors(self, wanted: Mapping[str, Iterable[Type]]) -> None:
        """Measure what types do to tensors, where that is not known from another size."""
        missing = {
            name: sorted(set(types) - self.errors.get(name, {}).keys()) for name, types in wanted.items()
        }
        missing = {name: types for name, types in missing.items() if types}
        with self.timed("errors") as progress:
            found = measure_type_errors(
                self.model, self.calibration, missing, output_side=self.output_side, threads=self.threads,
                progress=progress,
            )  # fmt: skip
        for name, errors in found.items():
            self.errors.setdefault(name, {}).update(errors)

    @contextmanager
    def timed(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Count the seconds of a part of the work; yields what reports its progress."""
        begin = time.perf_counter()
        self.progress(what, 0, 1)
        yield lambda done, total: self.progress(what, done, total)
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - begin


class _Search:
    """The search for one size."""

    def __init__(self, mixer: Mixer, files: Files, target: WantedSize, folder: Path) -> None:
        self._mixer, self._files, self._folder = mixer, files, folder
        self._wanted = target.n_bytes(mixer.model, lambda like: files.mixture(like).n_bytes)
        # An output-side Hessian saves more of embeddings than the floor guards against.
        spared = {EMBEDDINGS} if mixer.output_side and mixer.calibration.looks_up(EMBEDDINGS) else set()
        stock, self._options = usable_at(files, self._wanted, mixer.allowed, FLOORED - spared)
        for tensor in files.tensors:
            if mixer.sensitivity(tensor.name) is None:
                its_own = stock[-1].types[tensor.name] if stock else self._options[tensor.name][0]
                self._options[tensor.name] = [its_own]
        self._solver = Solver(files, self._options, stock, base_of(stock), mixer.sensitivity, mixer.errors)

    def run(self) -> Mix:
        """Refuse what is not reachable, then solve, measure, correct, and solve again."""
        self.refuse()
        mixer, solver = self._mixer, self._solver
        mixer.measure_errors(
            {
                name: {*types, *(mixture.types[name] for mixture in solver.stock)}
                for name, types in self._options.items()
            }
        )
        solution = solver.solve(self._wanted)
        first = self._try("round 1", solution.types)
        trials = [first]
        if mixer.corrects:
            solver.factors = self._corrections(first)
            solution = solver.solve(self._wanted)
            if solution.types != first.types:
                trials.append(self._try("round 2", solution.types))
        stock = None
        if solver.stock:
            peer = min(solver.stock, key=lambda mixture: solver.predicted(mixture.types))
            stock = self._try(peer.name, peer.types)
            trials.append(stock)
        best = min(trials, key=lambda trial: trial.kld)
        speed = None if stock is None or best is stock else self._speed(best, beside=stock)
        return Mix(
            self._recipe(best), self._wanted, trials, best, stock, speed, solution.gap, solution.any_bits,
            dict(mixer.seconds),
        )  # fmt: skip

    def refuse(self) -> None:
        """Refuse a size that is not reachable. Raises ConfigError."""
        check_reachable(self._files, self._wanted, self._options, self._solver.base)

    def _corrections(self, tried: Trial) -> dict[str, float]:
        """Find by how much kinds of tensors add more to a file's KLD than was predicted."""
        mixer = self._mixer
        with mixer.timed("kinds") as progress:
            made = ModelFile(self._path(tried.name))
            measured = measure_contributions(
                mixer.model, made, mixer.baseline.chunks, mixer.threads, progress
            )
        return corrections(measured, self._solver.by_kind(tried.types))

    def _try(self, name: str, types: Types) -> Trial:
        mixer, recipe = self._mixer, self._folder / "tried.toml"
        recipe.write_text(recipe_of(types, self._solver.base).to_toml())
        settings = {"hessian": mixer.calibration.path, "output_side": mixer.output_side}
        mode = make_mode({"mode": "recipe", "recipe": recipe, **settings})
        with mixer.timed("trials") as progress:
            path = self._path(name)
            result = quantize_model(
                mixer.model, path, mode, threads=mixer.threads, collects=False,
                progress=lambda done, total, _name: progress(done, total),
            )  # fmt: skip
            kld = mixer.baseline.kld_of(path, progress=partial(mixer.progress, "KLD of trials")).kld
            return Trial(name, types, result.output_bytes, kld.mean, kld.error)

    def _speed(self, best: Trial, *, beside: Trial) -> ModelSpeed:
        mixer = self._mixer
        n_ctx = mixer.model.hyperparameter("context_length", PROMPT)
        with mixer.timed("speed") as progress:
            report = measure_speed(
                [self._path(beside.name), self._path(best.name)],
                n_prompt=min(PROMPT, n_ctx),
                n_generate=min(TOKENS, n_ctx),
                rounds=ROUNDS,
                threads=mixer.threads,
                progress=progress,
            )
        return report.models[1]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.gguf"

    def _recipe(self, best: Trial) -> Recipe:
        solver = self._solver
        predicted = solver.predicted(best.types)
        level = best.kld / predicted if predicted > 0 else 0.0
        tensors = {}
        for tensor in self._files.tensors:
            type_, sensitivity = best.types[tensor.name], solver.sensitivity(tensor.name)
            factor = level * solver.factors.get(kind_of(tensor.name), 1.0)
            tensors[tensor.name] = Choice(
                type_,
                bits=bits_of(type_, tensor),
                share=solver.cost(tensor.name, type_) / predicted if predicted > 0 else None,
                sensitivity=None if sensitivity is None else factor * sensitivity,
            )
        return Recipe(
            solver.base,
            tensors,
            model_sha256=self._mixer.model.get(EQUALIZED_FROM) or self._mixer.model.sha256(),
            n_bytes=best.n_bytes,
            kld=best.kld,
            kld_error=best.error,
        )
