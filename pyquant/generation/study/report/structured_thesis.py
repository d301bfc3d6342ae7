"""Put a thesis's numbers on structured output beside ours: task arithmetic, by technique and length.

Source: A. García Casasola, master's thesis, 2025: Llama 3 8B in F16 and 70B in GPTQ INT8, vLLM 0.5.5 with
Outlines, one product to be rewritten, 100 texts in each cell.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from pyquant.generation.structured.cost import slowdown
from pyquant.generation.structured.task import TECHNIQUES
from pyquant.generation.study.report.structured import with_interval
from pyquant.generation.study.report.writing import Table, took
from pyquant.inspect.figures.style import BLUE
from pyquant.study.results.columns import get
from pyquant.study.results.figures import OTHERS, Panel, plain
from pyquant.study.results.read import ModelResults, RowResults

TASK = "arithmetic"
SCORES = ("parses", "evaluates")
LENGTHS = (50, 100, 200)
# Texts of 100 that parse and that evaluate, and seconds a text, at each of the lengths.
THESIS: dict[str, dict[str, tuple[tuple[int, int, float], ...]]] = {
    "Llama 3 8B": {
        "free": ((4, 48, 0.095), (4, 48, 0.094), (4, 48, 0.091)),
        "grammar": ((86, 86, 7.5), (96, 96, 8.7), (98, 98, 10.4)),
        "grammar and few shots": ((55, 55, 9.3), (82, 82, 14.3), (95, 95, 17.4)),
    },
    "Llama 3 70B": {
        "free": ((73, 80, 3.3), (73, 80, 7.7), (73, 80, 11.6)),
        "grammar": ((84, 84, 13.4), (99, 99, 27.6), (100, 100, 25.4)),
        "grammar and few shots": ((37, 37, 13.0), (86, 86, 20.6), (100, 100, 22.2)),
    },
}
Shares = dict[tuple[str, int], tuple[float, float]]
NOTE = (
    "Llama 3 is a master's thesis's (A. García Casasola, 2025; 8B in F16 and 70B in 8 bits, by vLLM and "
    "Outlines on GPUs). It asked for one product, and free texts evaluated there whatever their form; here "
    "they need the form."
)


def tables_beside(model: ModelResults) -> list[Table]:
    """Return tables of form and sense, and of seconds; none where task arithmetic was not measured."""
    ours = [(row, known) for row in model.rows if (known := _shares(row))]
    measured = {place for _, known in ours for place in known}
    techniques = [name for name in TECHNIQUES if any(name == way for way, _ in measured)]
    if not techniques:
        return []
    lengths = sorted({*LENGTHS, *(length for _, length in measured)})
    heads = [(f"{length} tokens", f"texts of at most {length} tokens") for length in lengths]
    places = [(name, length) for name in techniques for length in lengths]
    shares = [(row.label, [_both(known.get(place)) for place in places]) for row, known in ours]
    seconds = [(row.label, [_seconds(row, known, *place) for place in places]) for row, known in ours]
    for name, of in THESIS.items():
        at = {(way, length): cell for way in of for length, cell in zip(LENGTHS, of[way])}
        theirs = {place: (float(parses), float(evaluates)) for place, (parses, evaluates, _) in at.items()}
        shares.append((f"{name}, thesis", [_both(theirs.get(place)) for place in places]))
        times = [f"{at[place][2]:.3g}" if place in at else "-" for place in places]
        seconds.append((f"{name}, thesis", times))
    return [
        ("Task arithmetic beside a thesis: texts that parse / evaluate (%)", techniques, heads, shares),
        ("Task arithmetic beside a thesis: seconds a text", techniques, heads, seconds),
    ]


def _shares(row: RowResults) -> Shares:
    """Give the percentages that parse and that evaluate, by technique and length."""
    return {
        (cell["technique"], cell["max_tokens"]): (_percent(cell, "parses"), _percent(cell, "evaluates"))
        for cell in get(row.result("structured"), "cells") or []
        if cell["task"] == TASK
    }


def _percent(cell: dict[str, Any], score: str) -> float:
    return 100 * float(cell["scores"][score]["share"])


def _seconds(row: RowResults, known: Shares, technique: str, length: int) -> str:
    """Give seconds a text at the greatest length, which is the one that texts are written at."""
    cost = took(row, technique, TASK) if length == max(tokens for _, tokens in known) else None
    return f"{cost['seconds']:.3g}" if cost else "-"


def _both(shares: tuple[float, float] | None) -> str:
    return "-" if shares is None else f"{shares[0]:.0f} / {shares[1]:.0f}"


def shares_by_length(model: ModelResults, score: str) -> Panel | None:
    """Return a panel of a score against length: the unquantized model and the thesis's; None without.

    Parameters
    ----------
    model
        The results of one model.
    score
        `parses` or `evaluates`.
    """
    cells = [cell for cell in get(model.rows[0].result("structured"), "cells") or [] if cell["task"] == TASK]
    if not cells:
        return None
    used = [name for name in TECHNIQUES if any(cell["technique"] == name for cell in cells)]

    def draw(axes: Axes) -> None:
        for color, technique in zip((BLUE, *OTHERS), used):
            mine = sorted(
                (cell["max_tokens"], cell["scores"][score]["n"], cell["n"])
                for cell in cells
                if cell["technique"] == technique
            )
            shares, errors = with_interval([(hits, n) for _, hits, n in mine])
            at = [length for length, *_ in mine]
            axes.errorbar(
                at, shares, yerr=errors, fmt="o-", color=color, ecolor=color, capsize=2, markersize=4,
                label=plain(technique),
            )  # fmt: skip
            for line, of in zip((":", "--"), THESIS.values()):
                theirs = [cell[SCORES.index(score)] for cell in of.get(technique, ())]
                axes.plot(LENGTHS[: len(theirs)], theirs, line, color=color, linewidth=1)
        axes.set_ylabel(f"{score} (%)")
        axes.set_ylim(-3, 103)
        axes.set_xlabel("tokens of a text, at most", loc="right")
        axes.legend(fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.16))

    return draw


def slowdown_beside(model: ModelResults) -> str | None:
    """Say how much longer a token takes under the grammar than without, of the unquantized model."""
    costs = {name: took(model.rows[0], name) for name in ("free", "grammar")}
    ours = slowdown({name: cost["tokens"] / cost["seconds"] for name, cost in costs.items() if cost})
    if ours is None:
        return None
    theirs = []
    for name, of in THESIS.items():
        factors = [slow / fast for (*_, slow), (*_, fast) in zip(of["grammar"], of["free"])]
        theirs.append(f"{min(factors):.3g} to {max(factors):.3g} ({name})")
    return (
        f"A token under the grammar takes {ours:.2f} times as long as one without. In the thesis, texts "
        f"took longer by factors of {' and '.join(theirs)}."
    )
