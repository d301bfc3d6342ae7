"""Predict what drafting gains on models of 1 and 8 billion weights, by their costs and a small pair's record.

    python analysis/larger_drafts.py RECORD [RECORD ...] --folder FOLDER

RECORD is what `pyquant draft record` wrote, of a model and its own quantized copy. A pass of a few tokens and
a draft token are measured on generated models, with the widths and the vocabulary of a model of that size and
two numbers of layers. Each layer more takes as long as another, so this gives the whole. The draft is the
model in Q4_T, its output matrix too. How often drafts of such a model are accepted is not known: it is taken
to be as often as in the record. So all gains are predictions. Prints two tables of Markdown.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

from gguf import GGMLQuantizationType as Type

from pyquant.data.generated import GeneratedModel
from pyquant.generation.speculative.measure.measure_costs import measure_costs
from pyquant.generation.speculative.measure.measure_pair import STRATEGIES, best_policies, pooled
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.record.record import read_record
from pyquant.generation.speculative.replay.simulate import ORACLE, Simulated
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

TABLE = Path(__file__).resolve().parent.parent / "configs/tables/nonlinear.toml"
DRAFT = {"mode": "table", "table": str(TABLE), "store": "q4_t", "pure": True}
SHOWN = (2, 3, 4, 8)  # tokens of a pass


@dataclass(frozen=True)
class Shape:
    """A model to predict for: its widths and vocabulary, its layers, and two numbers of them to measure."""

    name: str
    generated: GeneratedModel
    n_layers: int
    measured: tuple[int, int]


# Widths of TinyLlama 1.1B and of Llama 3.1 8B. Whether embeddings are the output matrix too costs nothing.
SHAPES = (
    Shape(
        "1.1 B",
        GeneratedModel(
            n_embd=2048, n_ff=5632, n_head=32, n_head_kv=4, n_vocab=32000, tied=True, type=Type.F16
        ),
        22,
        (2, 8),
    ),
    Shape(
        "8 B",
        GeneratedModel(
            n_embd=4096, n_ff=14336, n_head=32, n_head_kv=8, n_vocab=128256, tied=True, type=Type.F16
        ),
        32,
        (2, 8),
    ),
)  # fmt: skip


def costs_of_layers(shape: Shape, n_layers: int, folder: Path, rounds: int, threads: int | None) -> Costs:
    """Measure a model with some of a shape's layers, and its draft; both files are removed then."""
    target, draft = (folder / f"larger-{name}.gguf" for name in ("target", "draft"))
    try:
        replace(shape.generated, n_layer=n_layers).write(target)
        quantize_model(target, draft, make_mode(DRAFT), threads=threads)
        os.sync()  # files of some GB go to the disk before anything is measured, not meanwhile
        return measure_costs(target, draft, rounds=rounds, threads=threads).costs
    finally:
        target.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)


def of_all_layers(shape: Shape, few: Costs, more: Costs) -> Costs:
    """Continue costs of two numbers of layers to all of a shape's."""
    a, b = shape.measured

    def whole(at_a: float, at_b: float) -> float:
        return at_a + (at_b - at_a) * (shape.n_layers - a) / (b - a)

    verify = tuple(map(whole, few.verify, more.verify))
    further, single = max(whole(few.further, more.further), 0.0), whole(few.alone, more.alone)
    following, prompt = whole(few.draft_next, more.draft_next), max(whole(few.prompt, more.prompt), 0.0)
    draft = whole(few.draft, more.draft)
    return Costs(draft, verify, further=further, single=single, next=following, prompt=prompt)


def gain_of(best: list[Simulated], *names: str) -> float:
    """Return the largest gain of some policies with their best parameters."""
    return max(its.gain for its in best if its.policy.partition(":")[0] in names)


def main() -> None:
    """Measure, replay and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+", metavar="RECORD")
    parser.add_argument("--folder", type=Path, required=True, help="for models of some GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    records = {path.name: pooled([read_record(path)]) for path in given.records}
    costs = {}
    for shape in SHAPES:
        few, more = (
            costs_of_layers(shape, n, given.folder, given.rounds, given.threads) for n in shape.measured
        )
        costs[shape.name] = of_all_layers(shape, few, more)
    print(f"| | T(1) | draft token | {' | '.join(f'T({n})' for n in SHOWN)} |\n|{'---|' * (3 + len(SHOWN))}")
    for name, its in costs.items():
        shares = [its.draft_next / its.alone, *(its.of_pass(n) / its.of_pass(1) for n in SHOWN)]
        print(f"| {name} | {1000 * its.alone:.0f} ms | {' | '.join(f'{share:.2f}' for share in shares)} |")
    print("\n| | record | accepted | expected value | thesis's best | oracle |\n|---|---|---|---|---|---|")
    for name, its in costs.items():
        for file, record in records.items():
            best = best_policies(record, its)
            gains = [
                gain_of(best, "expected_value"),
                gain_of(best, "plus_minus", *STRATEGIES),
                gain_of(best, ORACLE),
            ]
            accepted = f"{record.acceptance:.2f}" if record.acceptance is not None else ""
            print(f"| {name} | {file} | {accepted} | {' | '.join(f'{gain:.2f}' for gain in gains)} |")


if __name__ == "__main__":
    main()
