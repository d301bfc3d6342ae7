"""Measure a pair for a study: its costs, records of its drafts, the best parameters of policies, and runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.output_file import write_bytes
from pyquant.files.sha256 import files_sha256
from pyquant.generation.sampling.prompt import read_prompts
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.speculative.measure.cost_report import CostReport, Timed
from pyquant.generation.speculative.measure.measure_costs import measure_costs
from pyquant.generation.speculative.measure.run import run_policies
from pyquant.generation.speculative.policies import FAMILIES
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.record.make_record import Wanted, make_record
from pyquant.generation.speculative.record.prompts import make_prompts
from pyquant.generation.speculative.record.record import Record, read_record, read_record_of
from pyquant.generation.speculative.replay.search import search
from pyquant.generation.speculative.replay.simulate import NONE, ORACLE, Simulated, Simulation
from pyquant.llama.model import Model

STRATEGIES = ("static", "moving_average", "cumulative")  # strategies of entropy drafting

# (share done, what is at work)
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Length:
    """Texts of a record: tokens of a prompt and behind it, and how many texts."""

    prompt: int
    new: int
    texts: int


@dataclass(frozen=True)
class Cell:
    """A record of prompts of a sort."""

    sort: str
    length: Length
    record: Record


@dataclass(frozen=True)
class PairSettings:
    """What is measured of a pair.

    Attributes
    ----------
    sorts
        Of prompts: code, prose, chat.
    lengths
        Of texts.
    rounds
        Measurements of each cost, for each sort.
    confirm
        Prompts of each sort, of the middle one of the lengths, that texts are drafted for in earnest.
    turns
        How often these are written with each policy.
    """

    sorts: Sequence[str]
    lengths: Sequence[Length]
    rounds: int
    confirm: int
    turns: int

    @property
    def confirmed(self) -> Length:
        """The length of texts that are drafted in earnest."""
        return self.lengths[len(self.lengths) // 2]


@dataclass
class PairReport:
    """What was measured of a pair.

    Attributes
    ----------
    costs : CostReport
        Measured before the records of each sort.
    cells : list of Cell
    best : dict of list
        By sort of prompts, over texts of all lengths up to their first repetitions: the target alone, each
        policy with its best parameters, and the least possible.
    runs : list of dict
        Of each sort, as `pyquant draft run --costs C --record R --json` prints it.
    """

    costs: CostReport
    cells: list[Cell]
    best: dict[str, list[Simulated]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)


def measure_pair(
    target: Path,
    draft: Path | str,
    settings: PairSettings,
    *,
    work: Path,
    of_target: Path,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PairReport:
    """Measure a pair.

    Parameters
    ----------
    target
    draft
        A model with the target's vocabulary, or "ngram".
    settings
    work
        Beginning of the names of files in which records are kept; those that are there are not made again,
        and one that was interrupted goes on.
    of_target
        The same for prompts and the target's texts, which all its drafts share.
    threads
        None: all processors.
    progress

    Raises
    ------
    ConfigError, ModelFileError, TextError, OutputError, NotEnoughMemory
    """
    tell = progress or (lambda share, what: None)
    chat = _write_prompts(target, settings, of_target)
    measured, cells, n_steps = [], [], 2 * len(settings.sorts)
    for n, sort in enumerate(settings.sorts):
        # Costs are measured minutes apart: the machine may be slower for a while.
        tell(n / n_steps, "costs")
        measured.append(measure_costs(target, draft, rounds=settings.rounds, threads=threads))
        for length in settings.lengths:
            tell(n / n_steps, f"records of {sort}, {length.prompt} + {length.new} tokens")
            prompts = _file(of_target, sort, length, "jsonl")
            texts = prompts.with_suffix(f".{files_sha256([prompts])[:8]}.texts")  # others of other prompts
            wanted = Wanted(target, draft, prompts, sort == "chat" and chat, max_tokens=length.new)
            record = _record(wanted, texts, _file(work, sort, length, "record"), threads)
            cells.append(Cell(sort, length, record))
    pooled_costs = replace(measured[0], timed=Timed.pooled([part.timed for part in measured]))
    report, costs = PairReport(pooled_costs, cells), pooled_costs.costs
    for n, sort in enumerate(settings.sorts, start=len(settings.sorts)):
        records = {cell.length: cell.record for cell in cells if cell.sort == sort}
        tell(n / n_steps, f"policies for {sort}")
        report.best[sort] = best_policies(pooled(list(records.values())), costs)
        if settings.confirm:
            tell(n / n_steps, f"runs of {sort}")
            prompts = _file(of_target, sort, settings.confirmed, "jsonl")
            confirmed = _confirmed(report.best[sort])
            ran = _run(
                target, draft, prompts, settings, records[settings.confirmed], confirmed, costs, threads
            )
            report.runs.append({"sort": sort} | ran)
    return report


def pooled(records: Sequence[Record]) -> Record:
    """Put texts of records of the same models together, each up to its first repetition."""
    fresh = [record.before_repetitions() for record in records]
    return Record(fresh[0].source, [text for record in fresh for text in record.texts])


def best_policies(record: Record, costs: Costs) -> list[Simulated]:
    """Search every policy on a record; return the target alone, the best of each, and the least possible."""
    simulation = Simulation(record, costs, other_models=True)
    found = [search(simulation, name).best for name in FAMILIES]
    return [simulation.run(NONE), *found, simulation.run(ORACLE)]


def _write_prompts(target: Path, settings: PairSettings, work: Path) -> bool:
    """Write files of prompts; return whether the target has a chat template."""
    with Model(target) as model:
        for sort in settings.sorts:
            for length in settings.lengths:
                prompts = make_prompts(model, sort, length.texts, length.prompt)
                write_bytes(_file(work, sort, length, "jsonl"), prompts, sources=[], force=True)
        return model.chat_template() is not None


def _file(work: Path, sort: str, length: Length, ending: str) -> Path:
    return work.with_name(f"{work.name}.{sort}-{length.prompt}-{length.new}.{ending}")


def _record(wanted: Wanted, texts: Path, path: Path, threads: int | None) -> Record:
    try:
        return read_record_of(path, wanted.source())
    except ConfigError:  # there is none yet, or one of another version of the draft
        make_record(wanted, path, texts=texts, force=True, threads=threads)
    return read_record(path)


def _run(
    target: Path,
    draft: Path | str,
    prompts: Path,
    settings: PairSettings,
    record: Record,
    policies: Sequence[str],
    costs: Costs,
    threads: int | None,
) -> dict[str, Any]:
    """Write a few of a record's texts with no draft and with policies, in turns."""
    asked = read_prompts(prompts)[: settings.confirm]
    some = [text for text in record.texts if text.prompt < len(asked)]
    ran = run_policies(
        target,
        draft,
        policies,
        [prompt.chat() for prompt in asked] if record.source.chat else asked,
        sampling=Sampling(temperature=0),
        max_tokens=record.source.max_tokens,
        turns=settings.turns,
        costs=costs,
        threads=threads,
    )
    kept = {key: value for key, value in ran.to_json().items() if key not in ("target", "draft")}
    foretold = ran.foretold(Record(record.source, some))
    return kept | {"foretold": [its.to_json() for its in foretold]}


def _confirmed(best: list[Simulated]) -> list[str]:
    """Return the heuristic, the best of the thesis's strategies, and the expected value."""
    by_name = {its.policy.partition(":")[0]: its for its in best}
    strategy = min((by_name[name] for name in STRATEGIES), key=lambda its: its.ms_per_token)
    return [by_name["plus_minus"].policy, strategy.policy, by_name["expected_value"].policy]
