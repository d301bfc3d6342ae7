"""A method that ended goes on: the same call ends with the same bytes, another one begins anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyquant.errors import OutputError
from pyquant.files.kept import kept, not_used
from pyquant.fit.method.held_out import HELD_OUT
from pyquant.fit.method.quantize import quantize
from pyquant.fit.method.types_for_size import MIX
from pyquant.fit.method.work_folder import WorkFolder
from pyquant.fit.mixtures import WantedSize
from tests.support.command import ENVIRONMENT
from tests.support.methods import STAGES, made


def interrupt_gptq(what: str, done: int, total: int) -> None:
    if what == "GPTQ":
        raise KeyboardInterrupt


def test_a_call_that_ended_goes_on_to_the_same_bytes(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, output = tmp_path / "whole.gguf", tmp_path / "out.gguf"
    made(source, whole, short, effort="high")
    stages = [*STAGES, "trained scales"]
    for number, stage in enumerate(stages):
        begun: list[str] = []

        def progress(what: str, done: int, total: int, stage: str = stage, begun: list[str] = begun) -> None:
            begun.append(what)
            if what == stage:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            made(source, output, short, effort="high", progress=progress)
        # Of those before, only the one that was interrupted is done again.
        assert set(begun) - {"calibration", HELD_OUT} == set(stages[max(0, number - 1) : number + 1])
        assert not output.exists()
    made(source, output, short, effort="high")
    assert output.read_bytes() == whole.read_bytes()
    assert not (tmp_path / ".out.gguf.stages").exists()


@pytest.mark.ci
@pytest.mark.parametrize("stage", ["GPTQ", "error propagation"])
def test_a_stage_that_ended_goes_on_behind_its_last_tensor(
    source: Path, short: Path, tmp_path: Path, stage: str
) -> None:
    whole, output = tmp_path / "whole.gguf", tmp_path / "out.gguf"
    made(source, whole, short)
    seen: list[int] = []

    def stop(what: str, done: int, total: int) -> None:
        if what == stage:
            seen.append(done)
            if len(seen) == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(source, output, short, progress=stop)
    seen_again: list[int] = []
    made(
        source, output, short,
        progress=lambda what, done, total: seen_again.append(done) if what == stage else None,
    )  # fmt: skip
    assert seen_again[0] >= seen[3]  # the fifth was at work
    assert output.read_bytes() == whole.read_bytes()
    assert not (tmp_path / ".out.gguf.stages").exists()


def test_another_call_does_not_use_what_is_left(source: Path, short: Path, tmp_path: Path) -> None:
    left = WorkFolder(tmp_path / "out.gguf", {"type": "Q4_0"})
    left.file("imatrix").write_text("left")
    left.note("imatrix", {})
    left.__exit__(KeyError, KeyError(), None)  # as a killed process leaves it
    with WorkFolder(tmp_path / "out.gguf", {"type": "Q4_0"}) as folder:
        assert folder.known("imatrix") == {}
        with pytest.raises(OutputError, match="another process is writing it"):
            WorkFolder(tmp_path / "out.gguf", {})
    with WorkFolder(tmp_path / "out.gguf", {"type": "Q8_0"}) as folder:
        assert folder.known("imatrix") is None
        assert not folder.file("imatrix").exists()


def test_a_type_does_not_use_what_a_mix_of_its_size_left(source: Path, short: Path, tmp_path: Path) -> None:
    told: list[str] = []
    output, like = tmp_path / "out.gguf", WantedSize(like="Q4_0")
    of_both: dict[str, Any] = {"method": "gptq", "text": short, "n_ctx": 64, "n_chunks": 16}
    with pytest.raises(KeyboardInterrupt):
        quantize(source, output, like, progress=interrupt_gptq, **of_both)
    done = quantize(source, output, "Q4_0", tell=told.append, **of_both)
    assert not_used(tmp_path / ".out.gguf.stages") in told
    assert done.result["mode"] == "ggml:Q4_0"


def test_an_interrupted_run_names_the_folder_of_its_stages(source: Path, short: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        made(source, tmp_path / "out.gguf", short, method="gptq", progress=interrupt_gptq)
    assert tmp_path / ".out.gguf.stages" in kept()
    made(source, tmp_path / "out.gguf", short, method="gptq")
    assert tmp_path / ".out.gguf.stages" not in kept()


def test_two_calls_at_once_make_statistics_once(source: Path, short: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / "a.gguf", tmp_path / "b.gguf"]
    command = ["-m", "pyquant", "quantize", source, "OUT", "Q4_0", "--method", "gptq", "--text", short]
    environment = {**ENVIRONMENT, "PYQUANT_CACHE": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen(
            [sys.executable, *(str(output if word == "OUT" else word) for word in command)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, text=True,
        )
        for output in outputs
    ]  # fmt: skip
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert len(list((tmp_path / "cache" / "hessian").glob("*.gguf"))) == 1


def test_a_stage_whose_file_went_is_made_again(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files name their statistics, and tests beside this one put others into the common cache.
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))
    whole, output = tmp_path / "whole.gguf", tmp_path / "out.gguf"
    made(source, whole, short, method="gptq")

    with pytest.raises(KeyboardInterrupt):
        made(source, output, short, method="gptq", progress=interrupt_gptq)
    for path in (tmp_path / ".out.gguf.stages").glob("*.gguf"):
        path.unlink()
    made(source, output, short, method="gptq")
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.ci
def test_a_run_for_a_size_that_ended_late_is_made_again(source: Path, short: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.gguf"
    largest = WantedSize(target_bpw=8)
    options = {"method": "gptq", "text": short, "n_ctx": 64, "n_chunks": 16}

    with pytest.raises(KeyboardInterrupt):
        quantize(source, output, largest, progress=interrupt_gptq, **options)
    for path in (tmp_path / ".out.gguf.stages").glob("*.gguf"):
        path.unlink()
    done = quantize(source, output, largest, **options)
    assert done.result["mode"] == "recipe"
    assert done.mix["schema"] == "pyquant.mix/1", "what was found before is known"
    assert {name: of["type"] for name, of in done.mix["tensors"].items()}.items() <= {
        tensor["name"]: tensor["type"] for tensor in done.result["tensors"]
    }.items()
    assert output.exists()


@pytest.mark.ci
def test_a_run_for_a_size_goes_on_behind_measured_tensors(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, output, seen = tmp_path / "whole.gguf", tmp_path / "out.gguf", list[int]()
    sensitivities = f"{MIX}: sensitivities"
    options = {"method": "gptq", "text": short, "n_ctx": 64, "n_chunks": 16}

    def stop(what: str, done: int, total: int) -> None:
        if (what, done) == (sensitivities, 4):
            raise KeyboardInterrupt

    def see(what: str, done: int, total: int) -> None:
        if what == sensitivities:
            seen.append(done)

    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))
    quantize(source, whole, WantedSize(target_bpw=8), **options)
    (measured,) = (tmp_path / "cache").rglob("*.tensors")
    measured.unlink()
    with pytest.raises(KeyboardInterrupt):
        quantize(source, output, WantedSize(target_bpw=8), progress=stop, **options)
    assert len(measured.read_text().splitlines()) == 1 + 4
    quantize(source, output, WantedSize(target_bpw=8), progress=see, **options)
    assert seen[:2] == [0, 5]
    assert output.read_bytes() == whole.read_bytes()
    assert not (tmp_path / ".out.gguf.stages").exists()
    seen.clear()
    quantize(source, output, WantedSize(target_bpw=7), force=True, progress=see, **options)
    assert seen == [0], "sensitivities are those of the other size"


@pytest.mark.parametrize("damaged", ["[]", "{", "{}", '{"digest": 1, "stages": 2}', "[" * 100_000])
def test_a_damaged_note_of_stages_is_not_used(damaged: str, tmp_path: Path) -> None:
    left = WorkFolder(tmp_path / "out.gguf", {})
    left.file("imatrix").write_text("left")
    left.note("imatrix", {"why": "x"})
    left.__exit__(KeyError, KeyError(), None)
    state = left.path / "state.json"
    sound = state.read_text()
    for text in (damaged, sound.replace('"x"', '["x"]'), sound.replace("why", "kld")):
        state.write_text(sound)
        with WorkFolder(tmp_path / "out.gguf", {}) as folder:
            assert folder.known("imatrix") == {"why": "x"}
            folder.path.rename(tmp_path / "kept")
        (tmp_path / "kept").rename(left.path)
        state.write_text(text)
        with WorkFolder(tmp_path / "out.gguf", {}) as folder:
            assert folder.known("imatrix") is None
            folder.path.rename(tmp_path / "kept")
        (tmp_path / "kept").rename(left.path)


def test_work_of_another_run_is_not_used_and_said(tmp_path: Path) -> None:
    output, told = tmp_path / "out.gguf", list[str]()
    with WorkFolder(output, {"model": "a"}, told.append) as work:
        work.note("mix", {})
        (work.path / "imatrix.gguf").write_bytes(b"a")
        left = {path.name: path.read_bytes() for path in work.path.iterdir()}
    work.path.mkdir()
    for name, data in left.items():
        (work.path / name).write_bytes(data)
    with WorkFolder(output, {"model": "a"}, told.append) as work:
        assert work.known("mix") == {}
    work.path.mkdir()
    for name, data in left.items():
        (work.path / name).write_bytes(data)
    assert told == []
    with WorkFolder(output, {"model": "b"}, told.append) as work:
        assert work.known("mix") is None
        assert not (work.path / "imatrix.gguf").exists()
    assert told == [not_used(work.path)]
