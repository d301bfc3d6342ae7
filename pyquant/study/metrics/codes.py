"""Codes: how often each occurs, and how long runs of zeros are."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import LlamaFileType
from matplotlib.axes import Axes

from pyquant.errors import StudyError
from pyquant.formulas import shares
from pyquant.inspect.figures.codes import draw_codes, draw_runs
from pyquant.inspect.figures.style import ORANGE, plain
from pyquant.inspect.histogram import CodeCounts, count_codes
from pyquant.models.codebook import CODEBOOKS, Codebook
from pyquant.models.tensor_type import TensorType
from pyquant.schemes.ecsq import Ecsq
from pyquant.study.metric import Asked, Metric, Work
from pyquant.study.quantizer import Quantizer
from pyquant.study.results.columns import Column, Flat
from pyquant.study.results.figures import LETTERS, Drawing, Panel, figure
from pyquant.study.results.read import ModelResults, Results, RowResults
from pyquant.study.study_text import StudyText
from pyquant.study.task import Measured, Progress, Task, of_bytes

COUNTABLE = (LlamaFileType.MOSTLY_Q4_0, LlamaFileType.MOSTLY_Q8_0, LlamaFileType.MOSTLY_IQ4_NL)
COST = 20  # tokens of a forward pass that take about as long as counting
OF_TENSORS = ("name", "type", "n_codes", "entropy", "zero_share")


def codes_table(results: Results) -> list[Flat]:
    """List every code of each quantizer and type."""
    return [
        {**place, **{key: code[key] for key in ("code", "value", "count", "share")}}
        for place, total in _totals(results)
        for code in total["codes"]
    ]


def zero_runs_table(results: Results) -> list[Flat]:
    """List every length of zero runs of each quantizer and type."""
    return [
        {**place, "length": length, "count": count, "share": share, "geometric": geometric}
        for place, total in _totals(results)
        for length, count, share, geometric in zip(*total["zero_runs"].values())
    ]


def _totals(results: Results) -> Iterator[tuple[Flat, dict[str, Any]]]:
    for model in results.models:
        for row in model.rows:
            for total in (row.result("codes") or {"totals": ()})["totals"]:
                yield {"model": model.name, "quantizer": row.label, "type": total["type"]}, total


class Codes(Metric):
    """Counts codes and runs of zeros of modes that make Q4_0, Q8_0 or IQ4_NL."""

    name = "codes"
    version = 1
    unit = "row"
    title = "Codes, and runs of zeros beside chance"
    own_table = True
    note = (
        "Of codes drawn independently with a share p of zeros, 1 - p of the runs of zeros have length 1. "
        "Where the measured share is near it, runs tell nothing that single codes do not, and no coder of "
        "runs gets below the entropy. Tables of 16 values are stored in Q8_0 blocks, so their files are as "
        "large as Q8_0's; 16 codes take 4.5 bits per weight with their scales."
    )
    columns = (
        Column("entropy", "entropy (bits)", "of the codes: no coder of single codes takes less"),
        Column("zero_codes", "zeros (%)", "share of codes that are zero", "percent"),
        Column("single_zeros", "single zeros (%)", "share of runs of zeros that have length 1", "percent"),
        Column("single_zeros_by_chance", "by chance (%)", "the same, if zeros came independently", "percent"),
    )
    tables = MappingProxyType({"codes": codes_table, "zero_runs": zero_runs_table})

    def applies(self, quantizer: Quantizer | None) -> bool:
        # Codes are counted before a method's file or a recipe is there.
        if quantizer is None or quantizer.method or quantizer.mixed:
            return False
        # The codes of mode ecsq are none of the types' that are counted.
        return quantizer.mode.file_type in COUNTABLE and not isinstance(quantizer.mode, Ecsq)

    def work(self, asked: Asked, quantizer: Quantizer | None, text: StudyText | None) -> Work:
        return Work(COST)

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        (mode,) = task.modes
        counted = count_codes(task.model, mode, threads=threads, progress=of_bytes(progress)).to_json()
        tensors = [
            {**{key: tensor[key] for key in OF_TENSORS}, "isolated_share": tensor["zero_runs"]["shares"][0]}
            for tensor in counted["tensors"]
        ]
        result = {"totals": counted["totals"], "tensors": tensors, "not_counted": counted["skipped"]}
        return [Measured(result)]

    def cells(self, row: RowResults, text: int) -> Flat:
        if row.result("codes") is None:
            return dict.fromkeys(("n_codes", *(column.key for column in self.columns)))
        tables = _of_its_type(row)
        n_codes = sum(table.n_codes for table in tables)
        zeros = sum(table.zero_share * table.n_codes for table in tables) / n_codes
        return {
            "n_codes": n_codes,
            "entropy": sum(table.entropy * table.n_codes for table in tables) / n_codes,
            "zero_codes": zeros,
            "single_zeros": float(shares(np.sum([table.runs for table in tables], axis=0))[0]),
            "single_zeros_by_chance": 1 - zeros,
        }

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        drawn = []
        for row in model.rows:
            if row.result("codes"):
                table = ", by the table of the most codes" if len(_of_its_type(row)) > 1 else ""
                drawn += [
                    Drawing(
                        f"How often each code of {row.label} occurs{table}; orange: nearest to zero.",
                        figure(codes(row, by_code=row.mode == "q4_0")),
                    ),
                    Drawing(
                        f"Lengths of runs of zeros of {row.label}{table}; diamonds: if zeros came by chance.",
                        figure(runs(row)),
                    ),
                ]
        return drawn


def codes(row: RowResults, *, by_code: bool = False, marks: RowResults | None = None) -> Panel:
    """Return a panel of how often each code occurs.

    row: a quantizer whose codes were counted.
    by_code: whether codes are named as they are stored, not by the values they stand for.
    marks: a quantizer with a table, whose values are marked below the bars.
    Raises StudyError: the codes were not counted.
    """
    counted = code_statistics(row)

    def draw(axes: Axes) -> None:
        draw_codes(axes, counted)
        summary = f"entropy {counted.entropy:.3f} bits, zeros {100 * counted.zero_share:.2f} %"
        axes.set_title(_title(row.label, summary))
        if len(counted.codebook.codes) == 16:
            axes.tick_params(axis="x", labelsize=7.5)
        if by_code:
            axes.set_xticks(counted.codebook.codes, [str(code) for code in counted.codebook.codes])
            axes.set_xlabel("code as it is stored")
        if marks is not None:
            values = code_statistics(marks).codebook.values
            axes.plot(
                values, np.full(len(values), -0.025), "^",
                color=ORANGE, markeredgecolor="black", markeredgewidth=0.4, markersize=5,
                transform=axes.get_xaxis_transform(), clip_on=False, label=plain(f"values of {marks.label}"),
            )  # fmt: skip
            axes.tick_params(axis="x", pad=7)
            axes.legend(loc="upper left", bbox_to_anchor=(0.05, 1), fontsize=7.5)

    return draw


def runs(row: RowResults) -> Panel:
    """Return a panel of the lengths of zero runs beside the geometric law. Raises StudyError."""
    counted = code_statistics(row)

    def draw(axes: Axes) -> None:
        draw_runs(axes, counted)
        single, chance = 100 * counted.isolated_share, 100 * (1 - counted.zero_share)
        axes.set_title(_title(row.label, f"{single:.2f} % single, {chance:.2f} % by chance"))

    return draw


def _title(label: str, summary: str) -> str:
    """Write both on a line, or on two where they would not fit."""
    between = ": " if len(label) <= LETTERS else ":\n"
    return plain(f"{label}{between}{summary}")


def code_statistics(row: RowResults) -> CodeCounts:
    """Return the counts of a quantizer's own type; a mixture has others too.

    Tables of single tensors have a total each: that of the most codes is returned.
    Raises StudyError: the codes were not counted.
    """
    return max(_of_its_type(row), key=lambda table: table.n_codes)


def _of_its_type(row: RowResults) -> list[CodeCounts]:
    """The counts of each table, if tensors have their own."""
    result = row.result("codes")
    if result is None:
        raise StudyError(f"the codes of {row.label} have not been counted; `pyquant study run` does it")
    wanted = {"q4": "Q4_0", "q8": "Q8_0"}.get((row.mode or "")[:2], "")
    wanted += " table" if row.mode == "q8_table" else ""
    if wanted not in {total["type"] for total in result["totals"]}:
        wanted = max(result["totals"], key=lambda total: total["n_codes"])["type"]
    return [_statistics(total) for total in result["totals"] if total["type"] == wanted]


def _statistics(total: dict[str, Any]) -> CodeCounts:
    counted = total["codes"]
    values = np.array([code["value"] for code in counted], np.int8)
    if total["type"].endswith(" table"):
        book = Codebook.of_table(values)
    elif total["type"] == TensorType.Q4_T.name:
        book = Codebook.of_q4_t(values)
    else:
        book = CODEBOOKS[TensorType[total["type"]]]
    counts = np.zeros(len(book.values), np.uint64)
    counts[np.searchsorted(book.codes, [code["code"] for code in counted])] = [
        code["count"] for code in counted
    ]
    return CodeCounts(total["name"], book, counts, np.array(total["zero_runs"]["counts"], np.uint64))
