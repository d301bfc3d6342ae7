"""How far texts under a mask are from what a model would have written had it kept to the grammar by itself.

    python analysis/masking.py MODEL [--task function_call] [--items 5] [-n 10] [--max-tokens 60]

For each question of a task it draws texts under a mask and exact ones (`pyquant.generate.exactly`), of all
tokens at temperature 1. A mask makes a text likelier by 1 / (a1 a2 ...), where a is the share of probability
that the grammar leaves of a token. So the symmetric divergence of the two distributions, in nats a text, is
the difference of the means of log (a1 a2 ...) under the two. Texts that are cut off are left out of it. Costs
are tokens that the model computes for a text.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from pyquant.generate.exactly import generate_exactly
from pyquant.generate.generate import generate, make_plan
from pyquant.generate.result import END, Sample
from pyquant.generate.sampling import Sampling
from pyquant.grammar.engines import make_engine
from pyquant.llama.model import Model
from pyquant.structured.measure import prompt_of
from pyquant.structured.task import Item
from pyquant.structured.tasks import load_task


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--task", default="function_call")
    parser.add_argument("--technique", default="grammar and few shots")
    parser.add_argument("--items", type=int, default=5)
    parser.add_argument("-n", type=int, default=10, help="texts of each kind for a question")
    parser.add_argument("--max-tokens", type=int, default=60)
    parser.add_argument("--attempts", type=int, default=200)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    task = load_task(arguments.task)
    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=1)
    masked: list[tuple[Item, Sample]] = []
    exact: list[tuple[Item, Sample]] = []
    with Model(arguments.model) as model:
        engine = make_engine("llguidance", model.vocabulary)
        for item in task.items[: arguments.items]:
            room = {"n_samples": arguments.n, "max_tokens": arguments.max_tokens}
            plan = make_plan(model, [prompt_of(model, task, item, arguments.technique)], **room)
            form, threads = engine.compile(item.grammar), arguments.threads
            texts = generate(model, plan, sampling, grammar=form, measure_mask=True, threads=threads)
            masked += [(item, sample) for sample in texts]
            texts = generate_exactly(
                model, plan, sampling, form, most_attempts=arguments.attempts, threads=threads
            )
            exact += [(item, sample) for sample in texts]
    whole = [[(item, sample) for item, sample in drawn if sample.finish == END] for drawn in (masked, exact)]
    print(f"{'':8} {'texts':>6} {'whole':>6} {'right':>6} {'tokens/text':>12} {'log a':>8}")
    for name, drawn, kept in zip(("masked", "exact"), (masked, exact), whole):
        right = sum(task.check(item, sample.text).right for item, sample in kept)
        cost = np.mean([sample.n_run or len(sample.log_p) for _, sample in drawn])
        print(f"{name:8} {len(drawn):6} {len(kept):6} {right:6} {cost:12.0f} {np.mean(logs(kept)):8.2f}")
    apart, error = difference(*(logs(kept) for kept in whole))
    print(f"symmetric divergence {apart:.2f} ± {error:.2f} nats a text")


def logs(drawn: Sequence[tuple[Item, Sample]]) -> list[float]:
    """Logarithm of what masks leave of each text's tokens, together."""
    return [float(np.log(sample.allowed).sum()) for _, sample in drawn]


def difference(masked: Sequence[float], exact: Sequence[float]) -> tuple[float, float]:
    """The difference of two means, and its standard error."""
    variance = sum(np.var(values, ddof=1) / len(values) for values in (masked, exact))
    return float(np.mean(exact) - np.mean(masked)), float(variance**0.5)


if __name__ == "__main__":
    main()
