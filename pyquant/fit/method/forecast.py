"""What a method takes, said before its work: stages, time, memory and disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyquant.fit.method.expected_room import in_temporary, memory_of, on_disk
from pyquant.fit.method.expected_time import parts_of
from pyquant.fit.method.expected_work import Work
from pyquant.fit.method.hessian import MOST_BYTES
from pyquant.fit.method.split_text import widest_columns
from pyquant.fit.method.types_for_size import MIX
from pyquant.models.tensor_name import kind_of

# Tokens for each column from where it is not told what more of them bring; t of them add LOST / t to the
# error that tokens without end would leave (docs/methods/gptq.md); what twice as many take off at the most.
MANY, LOST, MOST_GAINED = 20, 0.7, 0.1


@dataclass(frozen=True)
class Forecast:
    """What is expected of a method.

    Attributes
    ----------
    stages
        Their names, in order.
    parts
        Calibration, stages, and their evaluation on held-out chunks: what progress calls each, in the order
        of the work, and its seconds.
    memory
        Bytes at the most, the mapped model not counted.
    hessian, making, beside, temporary
        Bytes on disk: of the Hessian statistics that are made, and while they are made; beside the output
        until it is complete; and in TMPDIR.
    all_hessians
        Bytes that the Hessians of all matrices would take.
    keeps_hessians
        Whether they are kept; else they are collected layer by layer, while the model is rounded.
    lacks_tokens
        The fewest tokens that errors are propagated over, where there are fewer; else 0.
    output_side
        Kinds of matrices that output-side Hessians are made of.
    columns, tokens_per_column
        What `widest_columns` counts, and tokens of the texts for each of these.
    """

    stages: list[str]
    parts: list[tuple[str, float]]
    memory: int
    hessian: int
    making: int
    beside: int
    temporary: int
    all_hessians: int
    keeps_hessians: bool
    lacks_tokens: int
    output_side: list[str]
    columns: int
    tokens_per_column: float

    @property
    def seconds(self) -> float:
        """The sum of all parts'."""
        return sum(seconds for _, seconds in self.parts)

    def lines(self) -> Iterator[str]:
        """Say it."""
        by_gptq = len(self.stages) > 1
        if by_gptq:
            yield f"stages: {', '.join(self.stages)}; those of the least KLD on held-out chunks are kept"
        yield f"time: about {max(1, round(self.seconds / 60)):,} min, less what the cache has already"
        yield f"memory: about {gb(self.memory)}, the mapped model not counted"
        temporary = f", {gb(self.temporary)} in TMPDIR" if self.temporary else ""
        spool = f", {gb(self.making)} while they are made" if self.hessian else ""
        yield (
            f"disk: {gb(self.hessian)} of Hessian statistics{spool}, {gb(self.beside)} beside the output"
            f"{temporary}"
        )
        if not by_gptq:
            return
        if self.lacks_tokens:
            yield f"error propagation: left out, as it takes {self.lacks_tokens:,} tokens or more"
        if self.tokens_per_column < MANY:
            gained = min(MOST_GAINED, LOST / 2 / (self.tokens_per_column + LOST))
            yield (
                f"calibration: {self.tokens_per_column:.1f} tokens for each of the {self.columns:,} columns "
                f"of the widest matrices; twice as many would take about {gained:.0%} off their error"
            )
        if not self.keeps_hessians and not self.hessian:
            yield "--hessian has diagonals alone: Hessians are collected layer by layer"
        elif not self.keeps_hessians:
            why = "Hessians of experts are shrunk towards each other"
            if self.all_hessians > MOST_BYTES:
                why = f"Hessians of all matrices would take {gb(self.all_hessians)}"
            yield f"{why}: they are collected layer by layer; --hessian FILE keeps them"
            if self.output_side:
                kinds = ", ".join(self.output_side)
                yield f"output-side Hessians: of {kinds}, whose outputs are the narrowest"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "seconds": self.seconds}


def forecast(work: Work) -> Forecast:
    """Add up what work takes."""
    names, columns = work.stages, widest_columns(work.model)
    return Forecast(
        [MIX, *names] if work.mixed else names,
        parts=parts_of(work),
        memory=memory_of(work),
        hessian=work.hessian_bytes,
        making=work.making_bytes,
        beside=on_disk(work),
        temporary=in_temporary(work),
        all_hessians=work.all_hessians,
        keeps_hessians=work.keeps,
        lacks_tokens=work.needed_to_propagate if work.method == "best" and not work.propagates else 0,
        output_side=list(dict.fromkeys(map(kind_of, work.rows))),
        columns=columns,
        tokens_per_column=work.n_tokens / columns,
    )


def gb(n_bytes: int) -> str:
    """Say a size."""
    return f"{n_bytes / 1e9:.2f} GB"
