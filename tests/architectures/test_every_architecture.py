"""Every architecture of llama.cpp goes through every command, beside stock llama.cpp's tools.

A command does its work, or says in one line why not; no signal ends it, and no traceback.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pyquant.models.model_file import ModelFile
from tests.support.architectures import CTX, EVERY, NAMES, UNLIKE, architecture_of, save, write
from tests.support.filled_models import NOT_MADE
from tests.support.forked_commands import ForkedCommands
from tests.support.oracle import Oracle
from tests.support.outcomes import KEPT, in_general, outcome, reasons, text_of
from tests.support.stock_logits import StockLogits
from tests.support.vendored import vendored

pytestmark = pytest.mark.oracle

# With an importance matrix or without.
TYPES = {
    "Q4_0": False, "Q5_1": True, "Q8_0": False, "Q2_K": True,
    "Q3_K_M": False, "Q4_K_M": True, "IQ4_NL": True, "Q6_K": False,
}  # fmt: skip
CHUNKS = 33  # two batches, the second one not full
WHY_NOT = reasons()
# Of perplexities: both are built from the same source with other options, and random weights make a token
# turn over to another expert, or a cached value to another F16.
ROUNDINGS = 2e-3


@dataclass(frozen=True)
class Case:
    """A model, and the folder where all that is made of it goes."""

    oracle: Oracle
    commands: ForkedCommands
    folder: Path
    model: Path
    text: Path
    # Options of llama-perplexity: those that it aborts with are taken off.
    runs_with: list[list[str]] = field(default_factory=lambda: [[], ["--no-repack"]])

    def ours(self, *arguments: object) -> str | None:
        """Run a command; return what it printed, or None if it refused in one line."""
        done = self.commands.run(*arguments, "--threads", 1)
        if done.status == 0:
            return done.stdout
        *_, last = done.stderr.strip().splitlines() or [""]
        assert done.status in (1, 2), f"{said(arguments)}: status {done.status}: {done.stderr[-600:]}"
        assert "Traceback" not in done.stderr, f"{said(arguments)}: {done.stderr[-600:]}"
        assert last.startswith("pyquant: "), f"{said(arguments)}: {done.stderr[-600:]}"
        print(f"{self.model.stem}: {said(arguments)}: {last}")
        return None

    def must(self, *arguments: object) -> str:
        """Run a command that stock llama.cpp has too."""
        printed = self.ours(*arguments)
        assert printed is not None, f"{said(arguments)}: refused"
        return printed

    def where_stock_runs(self, model: Path, *arguments: object) -> str | None:
        """Run a command that runs a model; it may refuse one that llama-perplexity aborts of."""
        printed = self.ours(*arguments)
        if printed is None:
            assert self.stock_logits(model) is None, f"{said(arguments)}: refused"
        return printed

    def stock_logits(self, model: Path) -> StockLogits | None:
        """Run llama-perplexity; where it aborts, without repacked matrices; None where it aborts again.

        It adds some matrices of Qwen 4 to activations, which GGML does with floats alone.
        """
        logits = self.folder / "logits"
        run = ["llama-perplexity", "-m", model, "-f", self.text, "-c", CTX, "--chunks", CHUNKS, "-t", 1]
        run += ["--kl-divergence-base", logits]
        for options in list(self.runs_with):
            with contextlib.suppress(AssertionError):
                self.oracle.run(*run, *options)
                self.runs_with[:] = self.runs_with[self.runs_with.index(options) :]
                return StockLogits.read(logits)
        return None

    @cached_property
    def base_logits(self) -> StockLogits | None:
        """What the model itself computes in llama-perplexity."""
        return self.stock_logits(self.model)


def said(arguments: tuple[object, ...]) -> str:
    return " ".join(str(a).rpartition("/")[2] for a in arguments)


def same_files(case: Case) -> None:
    imatrix = case.folder / "imatrix.gguf"
    for type_, weighted in TYPES.items():
        ours, theirs = case.folder / f"{type_}.gguf", case.folder / "theirs.gguf"
        options = ["--imatrix", imatrix] if weighted and imatrix.exists() else []
        made = case.ours("quantize", case.model, ours, type_, *options)
        try:
            case.oracle.quantize(case.model, theirs, type_, *options)
        except AssertionError:
            theirs.unlink(missing_ok=True)
        assert (made is not None) == theirs.exists(), f"{type_}: one refuses it"
        assert made is None or ours.read_bytes() == theirs.read_bytes(), f"{type_}: other bytes"


def same_imatrix(case: Case) -> None:
    longest = max(t.n_per_row for t in ModelFile(case.model).tensors if len(t.shape) > 1)
    chunks = max(CHUNKS, 8 * longest // CTX)
    case.must(
        "calibrate", case.model, "--text", case.text, "--ctx", CTX, "--chunks", chunks, "-o",
        case.folder / "hessian.gguf", "--imatrix", case.folder / "imatrix.gguf",
    )  # fmt: skip
    theirs = case.folder / "theirs.gguf"
    run = ["-m", case.model, "-f", case.text, "-o", theirs, "-c", CTX, "--chunks", chunks, "-t", 1]
    try:
        case.oracle.run("llama-imatrix", *run, "--no-ppl", "-ub", 2048)
    except AssertionError as died:  # of a segmentation fault: glm5-next
        print(f"{case.model.stem}: {str(died)[:60]}")
        return
    assert (case.folder / "imatrix.gguf").read_bytes() == theirs.read_bytes(), "other importance matrix"


def same_figures(case: Case) -> None:
    base = case.base_logits
    assert base is not None
    printed = case.must("perplexity", case.model, *on_text(case), "--json")
    assert json.loads(printed)["results"][0]["ppl"] == pytest.approx(base.perplexity, rel=ROUNDINGS)
    models = [case.folder / f"{type_}.gguf" for type_ in ("Q4_0", "Q4_K_M")]
    for model in models:
        theirs = case.stock_logits(model)
        if theirs is None:
            assert case.ours("perplexity", model, *on_text(case)) is None, model.stem
            continue
        (ours,) = compared(case, model)
        kld = base.kld(theirs)  # a model that 4 bits change much amplifies every other rounding, too
        rel = ROUNDINGS * (1 + 10 * kld)
        assert ours["perplexity"] == pytest.approx(theirs.perplexity, rel=rel), model.stem
        assert ours["kld"]["mean"] == pytest.approx(kld, rel=0.05, abs=1e-5), model.stem


def gptq(case: Case) -> None:
    rounded(case, "gptq")


def error_propagation(case: Case) -> None:
    rounded(case, "propagated", "--error-propagation", 256)


def rounded(case: Case, name: str, *options: object) -> None:
    case.ours(
        "quantize", case.model, case.folder / f"{name}.gguf", "--mode", "ggml:IQ4_NL", "--hessian",
        case.folder / "hessian.gguf", *options,
    )  # fmt: skip


def equalized(case: Case) -> None:
    hessian = case.folder / "hessian.gguf"
    if case.ours("equalize", case.model, case.folder / "equalized.gguf", "--hessian", hessian) is not None:
        (found,) = compared(case, case.folder / "equalized.gguf")
        assert found["kld"]["mean"] < 1e-4, f"equalizing changes the model: KLD {found['kld']['mean']}"


def best(case: Case) -> None:
    """What comes of it is what docs/families.md says; no model that llama-perplexity runs is refused."""
    found = outcome(case.commands, case.model, case.folder, case.text)
    assert found == json.loads(KEPT.read_text())[case.model.stem]
    if not (case.folder / "best.gguf").exists():
        assert case.stock_logits(case.folder / "IQ4_NL.gguf") is None, "best: refused"


def best_in_stock(case: Case) -> None:
    """The file of `best` has in stock llama.cpp the KLD that is measured here."""
    made = case.folder / "best.gguf"
    if not made.exists():  # refused, as `best` found
        return
    (ours,) = compared(case, made)
    kld = case.base_logits.kld(case.stock_logits(made))
    assert ours["kld"]["mean"] == pytest.approx(kld, rel=0.05, abs=1e-5)


def nearer(case: Case) -> None:
    made = [case.folder / f"{name}.gguf" for name in ("IQ4_NL", "gptq", "propagated", "best")]
    made = [path for path in made if path.exists()]
    printed = case.where_stock_runs(made[0], "compare", case.model, *made, *on_text(case), "--json")
    if printed is None:
        return
    kld = {path.stem: found["kld"]["mean"] for path, found in zip(made, json.loads(printed)["candidates"])}
    print(f"{case.model.stem}: KLD {kld}")
    assert max(kld["gptq"], kld.get("propagated", 0)) < kld["IQ4_NL"], kld
    # Of few chunks, chosen by others that are held out.
    assert kld.get("best", 0) <= 1.05 * kld["IQ4_NL"], kld


def on_text(case: Case) -> list[object]:
    return ["--text", case.text, "--ctx", CTX, "--chunks", CHUNKS]


def compared(case: Case, *models: Path) -> list[dict[str, Any]]:
    return json.loads(case.must("compare", case.model, *models, *on_text(case), "--json"))["candidates"]


def refused(case: Case) -> None:
    """What runs models refuses this one, and says why."""
    by_gptq = ["quantize", case.model, case.folder / "gptq.gguf", "IQ4_NL", "--method", "gptq"]
    for arguments in (["perplexity", case.model, *on_text(case)], by_gptq):
        done = case.commands.run(*arguments)
        assert done.status == 1
        said = done.stderr.splitlines()[-1].removeprefix("pyquant: ")
        assert in_general(said, case.model) == WHY_NOT[case.model.stem]


STEPS = [
    same_imatrix, same_files, same_figures, gptq, error_propagation, equalized, best, best_in_stock, nearer,
]  # fmt: skip
STEPS_NOT_RUN = [same_files, refused, best]


@pytest.fixture(scope="module")
def long_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_of(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    with ForkedCommands(tmp_path_factory.mktemp("commands")) as commands:
        yield commands


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in UNLIKE else pytest.mark.slow) for name in EVERY]
)
def test_every_command(
    oracle: Oracle, commands: ForkedCommands, long_text: Path, name: str, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    case = Case(oracle, commands, tmp_path, write(oracle, models, name), long_text)
    faults = []
    for step in STEPS if WHY_NOT[name] is None else STEPS_NOT_RUN:
        try:
            step(case)
        except AssertionError as fault:
            faults.append(f"{step.__name__}: {fault}")
    shutil.rmtree(tmp_path)
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_no_architecture_is_left_out(oracle: Oracle, tmp_path: Path) -> None:
    assert sorted(save(oracle, tmp_path)) == NAMES
    source = (vendored("llama") / "src/llama-arch.cpp").read_text()
    known = set(re.findall(r"\{ LLM_ARCH_\w+, +\"([^\"(]+)\"", source))
    assert known - {*map(architecture_of, EVERY)} == NOT_MADE
