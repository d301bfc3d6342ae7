"""Find the types of a model's tensors that give the least KLD at a size: a recipe.

What is predicted for a choice of types is the sum over tensors of sensitivity times error of outputs. The
file of the first round is made, and its KLD is measured. Where sensitivities come of a few runs, what each
kind of tensor adds to it corrects them for a second round. The best stock mixture that fits, rounded alike,
is measured too, and the result is the best of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyquant.calibration.calibration import Calibration
from pyquant.evaluate.baseline import Baseline
from pyquant.evaluate.speed import ModelSpeed, measure_speed
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
from pyquant.fit.type_errors import TypeErrors, measure_type_errors
from pyquant.models.header import EQUALIZED_FROM
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.shards import Split
from pyquant.schemes.recipe_file import Choice, Recipe
from pyquant.schemes.settings import make_mode

PROMPT, TOKENS, ROUNDS = 128, 32, 3  # of the measurement of speed

# (what is done, steps done, all steps)
Progress = Callable[[str, int, int], None]


class Mixer:
    """Finds the mixture of a model's types that has the least KLD at a size.

    Parameters
    ----------
    model, calibration
        The model, unquantized, and what is known of its inputs.
    target
        The size.
    folder
        Where files that are tried are written; they stay.
    allowed
        Types that may be used; None: all that GPTQ rounds to.
    output_side
        Whether files will be rounded with output-side Hessians, where the calibration has them.
    split
        How the file will be divided, as headers of shards are part of its size; None: into one.
    threads
        None: all cores.
    progress
        Called with what is done, and its steps done and all.

    Raises
    ------
    ConfigError
        The size is not reachable, or no type fits a tensor: nothing has been measured yet.
    """

    def __init__(
        self,
        model: ModelFile,
        calibration: Calibration,
        target: WantedSize,
        folder: Path,
        *,
        allowed: Sequence[Type] | None = None,
        output_side: bool = True,
        split: Split | None = None,
        threads: int | None = None,
        progress: Progress = lambda what, done, total: None,
    ) -> None:
        self._model, self._calibration, self._folder = model, calibration, folder
        self._output_side, self._split = output_side, split
        self._threads, self._progress = threads, progress
        self._seconds: dict[str, float] = {}
        self._files = Files(model, calibration.path, folder, split=split, spare=target.spare, threads=threads)
        self._wanted = target.n_bytes(model, lambda like: self._files.mixture(like).n_bytes)
        # An output-side Hessian saves more of embeddings than the floor guards against.
        spared = {EMBEDDINGS} if output_side and calibration.looks_up(EMBEDDINGS) else set()
        self._stock, self._options = usable_at(self._files, self._wanted, allowed, FLOORED - spared)
        self._base = base_of(self._stock)
        self._refuse()

    @contextmanager
    def timed(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Count the seconds of a part of the work; yields what reports its progress."""
        begin = time.perf_counter()
        self._progress(what, 0, 1)
        yield lambda done, total: self._progress(what, done, total)
        self._seconds[what] = self._seconds.get(what, 0.0) + time.perf_counter() - begin

    def find(
        self, baseline: Baseline, sensitivity: Callable[[str], float | None], *, corrects: bool = True
    ) -> Mix:
        """Measure what types do to tensors, solve, measure the file, correct, and solve again.

        Parameters
        ----------
        baseline
            The model's, on the text that KLDs are measured on.
        sensitivity
            How much KLD errors in each tensor cause; tensors of which it is None keep the type of the
            nearest stock mixture.
        corrects
            Whether sensitivities are corrected for a second round.

        Raises
        ------
        ConfigError
            The size is not reachable with tensors that keep their type.
        """
        nearest = self._stock[-1].types if self._stock else {}
        for tensor in self._files.tensors:
            if sensitivity(tensor.name) is None:
                self._options[tensor.name] = [nearest.get(tensor.name, self._options[tensor.name][0])]
        self._refuse()
        solver = Solver(
            self._files, self._options, self._stock, self._base, sensitivity, self._measure_errors()
        )
        solution = solver.solve(self._wanted)
        first = self._try(baseline, "round 1", solution.types)
        trials = [first]
        if corrects:
            solver.factors = self._corrections(baseline, solver, first)
            solution = solver.solve(self._wanted)
            if solution.types != first.types:
                trials.append(self._try(baseline, "round 2", solution.types))
        stock = None
        if self._stock:
            peer = min(self._stock, key=lambda mixture: solver.predicted(mixture.types))
            stock = self._try(baseline, peer.name, peer.types)
            trials.append(stock)
        best = min(trials, key=lambda trial: trial.kld)
        speed = None if stock is None or best is stock else self._speed(best, beside=stock)
        return Mix(
            self._recipe(solver, best), self._wanted, trials, best, stock, speed, solution.gap,
            solution.any_bits, self._seconds,
        )  # fmt: skip

    def _refuse(self) -> None:
        check_reachable(self._files, self._wanted, self._options, self._base)

    def _measure_errors(self) -> TypeErrors:
        wanted = {
            name: sorted({*types, *(mixture.types[name] for mixture in self._stock)})
            for name, types in self._options.items()
        }
        with self.timed("errors") as progress:
            return measure_type_errors(
                self._model, self._calibration, wanted, output_side=self._output_side,
                threads=self._threads, progress=progress,
            )  # fmt: skip

    def _corrections(self, baseline: Baseline, solver: Solver, tried: Trial) -> dict[str, float]:
        """Find by how much kinds of tensors add more to a file's KLD than was predicted."""
        with self.timed("kinds") as progress:
            made = ModelFile(self._path(tried.name))
            measured = measure_contributions(self._model, made, baseline.chunks, self._threads, progress)
        return corrections(measured, solver.by_kind(tried.types))

    def _try(self, baseline: Baseline, name: str, types: Types) -> Trial:
        recipe = self._folder / "tried.toml"
        recipe.write_text(recipe_of(types, self._base).to_toml())
        settings = {"hessian": self._calibration.path, "output_side": self._output_side}
        mode = make_mode({"mode": "recipe", "recipe": recipe, **settings})
        with self.timed("trials") as progress:
            path = self._path(name)
            result = quantize_model(
                self._model, path, mode, threads=self._threads, collects=False,
                progress=lambda done, total, _name: progress(done, total),
            )  # fmt: skip
            kld = baseline.kld_of(path, progress=partial(self._progress, "KLD of trials")).kld
            n_bytes = result.output_bytes if self._split is None else self._files.n_bytes(types, self._base)
            return Trial(name, types, n_bytes, kld.mean, kld.error)

    def _speed(self, best: Trial, *, beside: Trial) -> ModelSpeed:
        n_ctx = self._model.hyperparameter("context_length", PROMPT)
        with self.timed("speed") as progress:
            report = measure_speed(
                [self._path(beside.name), self._path(best.name)],
                n_prompt=min(PROMPT, n_ctx),
                n_generate=min(TOKENS, n_ctx),
                rounds=ROUNDS,
                threads=self._threads,
                progress=progress,
            )
        return report.models[1]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.gguf"

    def _recipe(self, solver: Solver, best: Trial) -> Recipe:
        predicted = solver.predicted(best.types)
        level = best.kld / predicted if predicted > 0 else 0.0
        tensors = {}
        for tensor in self._files.tensors:
            type_, sensitivity = best.types[tensor.name], solver.sensitivity(tensor.name)
            factor = level * solver.factor(tensor.name)
            tensors[tensor.name] = Choice(
                type_,
                bits=bits_of(type_, tensor),
                share=solver.cost(tensor.name, type_) / predicted if predicted > 0 else None,
                sensitivity=None if sensitivity is None else factor * sensitivity,
            )
        return Recipe(
            self._base,
            tensors,
            model_sha256=self._model.get(EQUALIZED_FROM) or self._model.sha256(),
            n_bytes=best.n_bytes,
            kld=best.kld,
            kld_error=best.error,
        )
