"""Measure how far masking is from what a model would have said, had it kept to the grammar by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyquant.generation.sampling.exactly import generate_exactly
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.result import REFUSED
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.structured.answers import Answer, answer_of, count
from pyquant.generation.structured.checker import Checker
from pyquant.generation.structured.measure import check_settings, compile_for, prompt_of
from pyquant.generation.structured.task import Task
from pyquant.llama.model import Model, path_of
from pyquant.models.model_file import AnyModel

TECHNIQUE = "grammar"  # its prompts are asked
ATTEMPTS = 100  # the most that a completion may take


@dataclass
class ExactCell:
    """Answers of a model to the same questions, in two ways.

    Attributes
    ----------
    masked, exact
        Generated under masks; and accepted, of `n` completions: these come as often as the model generates
        them.
    attempts, n_run
        What all exact completions took: attempts, and tokens that the model computed for them.
    """

    model: str
    max_tokens: int
    n: int  # completions of each way
    masked: list[Answer] = field(default_factory=list)
    exact: list[Answer] = field(default_factory=list)
    attempts: int = 0
    n_run: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant structured --json` prints each of its `exact`."""
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "n": self.n,
            "refused": self.n - len(self.exact),
            "attempts_per_text": self.attempts / self.n,
            "tokens_run_per_text": self.n_run / self.n,
            "masked": count(self.masked, None),
            "exact": count(self.exact, None) if self.exact else None,
        }


def measure_exact(
    models: Sequence[AnyModel],
    task: Task,
    *,
    n: int,
    max_tokens: int = 50,
    seed: int = 0,
    engine: str | None = None,
    most_attempts: int = ATTEMPTS,
    threads: int | None = None,
) -> list[ExactCell]:
    """Let each model answer under masks, and by exact sampling, both at temperature 1 from all tokens.

    Parameters
    ----------
    models, task, seed, engine, threads
        As for `measure_structured`.
    n
        Completions of each way: the task's questions in turns.
    max_tokens
        Of a completion; exact completions are those that end within it.
    most_attempts
        For an exact completion, after which it is refused.

    Raises
    ------
    ConfigError, ModelFileError, GrammarError
    """
    check_settings([TECHNIQUE], [max_tokens], n, engine)
    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=seed)
    turns, more = divmod(n, len(task.items))
    asked = task.items[:n]
    left_out = {(i, turns) for i in range(more, len(asked))} if more else set()
    cells = []
    with Checker(task) as checker:
        for model in models:
            with Model(model) as loaded:
                cell = ExactCell(str(path_of(model)), max_tokens, n)
                grammars = compile_for(loaded.vocabulary, asked, [TECHNIQUE], engine or task.engine)
                assert grammars is not None
                prompts = [prompt_of(loaded, task, item, TECHNIQUE) for item in asked]
                plan = make_plan(loaded, prompts, n_samples=turns + bool(more), max_tokens=max_tokens)
                masked = generate(
                    loaded,
                    plan,
                    sampling,
                    grammar=grammars,
                    measure_mask=True,
                    threads=threads,
                    done=left_out,
                )
                exact = generate_exactly(
                    loaded, plan, sampling, grammars, most_attempts=most_attempts, threads=threads,
                    done=left_out,
                )  # fmt: skip
                for written, answers in ((masked, cell.masked), (exact, cell.exact)):
                    for sample in written:
                        cell.attempts += sample.attempts
                        cell.n_run += sample.n_run
                        if sample.finish != REFUSED:
                            of = asked[sample.prompt], max_tokens, sample.number, loaded.vocabulary
                            answers.append(answer_of(sample, *of, checker.check))
                cells.append(cell)
    return cells
