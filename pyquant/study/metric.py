"""Interface of metrics: a metric is something that a study measures, with how it runs and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

from pyquant.study.quantizer import Quantizer
from pyquant.study.results.columns import Column, Flat
from pyquant.study.results.figures import Drawing
from pyquant.study.results.read import ModelResults, Results, RowResults
from pyquant.study.study_text import StudyText
from pyquant.study.task import Measured, Progress, Task, about_n_tokens

# Things that one task measures, in the order in which tasks are best done:
#   prerequisite  what quantizers of a model are made with; nobody asks for it by name
#   row           a quantizer by itself
#   text          quantized models beside the unquantized one, on a text
#   sample        the model of a quantizer by itself, text by text that it writes: what is interrupted goes on
#                 at the next one
#   pair          quantized models beside the unquantized one, without a text
Unit = Literal["prerequisite", "row", "text", "sample", "pair"]


@dataclass(frozen=True)
class Asked:
    """What a study asks of its metrics.

    Attributes
    ----------
    n_ctx, n_chunks
        Tokens in a chunk of a text, and how many chunks are used; None: all.
    texts
        Its texts, plain ones first; none where no metric is measured on texts.
    settings
        Settings of a metric, by its name.
    threads
        Those of each process, if they were given.
    """

    n_ctx: int
    n_chunks: int | None
    texts: Sequence[StudyText]
    settings: Mapping[str, Any]
    threads: int | None = None


@dataclass(frozen=True)
class Work:
    """Costs and options of a task of a metric.

    Attributes
    ----------
    tokens
        Estimate of the time for each row, in tokens of a forward pass.
    options
        Arguments of the library's function, by name.
    text
        The text that models are run over.
    """

    tokens: float
    options: dict[str, Any] = field(default_factory=dict)
    text: Path | None = None


@dataclass(frozen=True)
class Grid:
    """A further table of a report, with its cells as text.

    Attributes
    ----------
    title
        Its heading.
    groups
        Names above the columns, each over all of `heads`.
    heads
        Heads of the columns, each with its definition.
    rows
        Name of each row, and its cells.
    """

    title: str
    groups: list[str]
    heads: list[tuple[str, str]]
    rows: list[tuple[str, list[str]]]


class Metric:
    """Something that a study measures.

    Subclasses name themselves in `name`, say what they need, run, and show what they found. They are
    found by being in this package.

    Attributes
    ----------
    name
        What a study's `measure` and the names of results call it.
    version
        Raised when what it writes means something else: its results are made again, others stay.
    unit
        What one task measures. Metrics of texts, samples and pairs need files of quantized models.
    makes_model
        Whether its task writes the quantized model that the others need. One metric does.
    alone
        Whether nothing else may run beside it.
    has_items
        Whether it gives results per item too.
    by_default
        Whether a study without `measure` has it.
    settings
        Keys of the TOML table of its name, if it has one.
    title
        Heading of its own section in the report; None where its figures stand with the results of a text.
    columns
        Its columns in tables for people, of what `cells` gives.
    own_table
        Whether these columns stand in a table of its own section.
    note
        A sentence below its section.
    tables
        Further tables for spreadsheets and databases, by name.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    unit: ClassVar[Unit]
    makes_model: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    has_items: ClassVar[bool] = False
    by_default: ClassVar[bool] = True
    settings: ClassVar[type[BaseModel] | None] = None
    title: ClassVar[str | None] = None
    columns: ClassVar[tuple[Column, ...]] = ()
    own_table: ClassVar[bool] = False
    note: ClassVar[str] = ""
    tables: ClassVar[Mapping[str, Callable[[Results], list[Flat]]]] = {}

    registry: ClassVar[dict[str, Metric]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "name"):  # a common base of metrics is none
            Metric.registry[cls.name] = cls()

    @property
    def needs_files(self) -> bool:
        """Say whether it takes files of quantized models."""
        return self.unit in ("text", "sample", "pair")

    def applies(self, quantizer: Quantizer | None) -> bool:
        """Return whether it can be measured of a quantizer; None stands for the unquantized model."""
        return True

    def inputs(self, asked: Asked, text: StudyText | None) -> dict[str, Any]:
        """Return what its result depends on beside the model and the quantizer, as JSON."""
        return {}

    def takes(self, text: StudyText) -> bool:
        """Return whether it is measured on a text, if it is measured on texts: chats, and with what cache."""
        return text.is_plain

    def place(self, settings: dict[str, Any], folder: Path) -> None:
        """Make paths in a TOML's table of settings, which nobody has checked yet, relative to its folder."""

    def inputs_of_samples(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return those of a run's inputs that a sample depends on: runs that agree in them share samples."""
        return inputs

    def work(self, asked: Asked, quantizer: Quantizer | None, text: StudyText | None) -> Work:
        """Return what a task for a quantizer takes; for texts and pairs, a task for several of a model."""
        raise NotImplementedError

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        """Measure, in a worker.

        Returns
        -------
        list of Measured
            One for each of the task's modes.

        Raises
        ------
        PyquantError
            What the library raises.
        """
        raise NotImplementedError

    def cells(self, row: RowResults, text: int) -> Flat:
        """Return its part of a flat row: the same names for every row, None where nothing is known."""
        return {}

    def first_figures(self, model: ModelResults, text: int) -> list[Drawing]:
        """Draw what people look for first: the report opens with it."""
        return []

    def first_grids(self, model: ModelResults, text: int) -> list[Grid]:
        """Return tables that stand below these figures."""
        return []

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        """Draw what it found of a model; on a text, where it is measured on texts."""
        return []

    def findings(self, model: ModelResults, text: int) -> list[str]:
        """Say in words what it found of a model; on a text, where it is measured on texts."""
        return []

    def remarks(self, model: ModelResults, text: int) -> list[str]:
        """Return sentences that stand below the table of results."""
        return []

    def grids(self, model: ModelResults, text: int) -> list[Grid]:
        """Return further tables for the report."""
        return []


class TextMetric(Metric):
    """A metric of models that are run over a study's texts, in its chunks."""

    unit = "text"

    def inputs(self, asked: Asked, text: StudyText | None) -> dict[str, Any]:
        """Return the text and how it is cut into chunks."""
        assert text is not None
        return {**text.inputs, "n_ctx": asked.n_ctx, "n_chunks": asked.n_chunks}

    def work(self, asked: Asked, quantizer: Quantizer | None, text: StudyText | None) -> Work:
        """Return the work of running a model over the text."""
        assert text is not None
        options = {"n_ctx": asked.n_ctx, "n_chunks": asked.n_chunks}
        return Work(about_n_tokens(text.n_bytes, asked.n_ctx, asked.n_chunks), options, text.path.absolute())
