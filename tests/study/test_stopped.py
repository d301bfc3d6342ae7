"""A study that is killed, interrupted or crowded goes on to the same results."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyquant.errors import ConfigError, StudyError
from pyquant.study import executor
from pyquant.study import run as run_module
from pyquant.study.config import read_study
from pyquant.study.executor import local
from pyquant.study.measure import perform
from pyquant.study.results.read import read_results
from pyquant.study.run import Status, run_study
from pyquant.study.store import Store
from pyquant.study.task import Outcome, Task
from tests.support.studies import Lab, contents, snapshot, start, wait_for


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_anywhere_it_goes_on(
    lab: Lab, tmp_path: Path, undisturbed_study: dict[str, dict], seed: int
) -> None:
    results = tmp_path / "results"
    kills = [3 + seed, 9 + 2 * seed, 16 + 2 * seed]
    for n_files in kills:
        process = start(lab.command(results))
        wait_for(lambda: len(list((results / "runs").glob("*.json"))) >= n_files, process)  # noqa: B023
        time.sleep(0.02 * seed)
        process.kill()  # only the parent: its workers end by themselves
        process.communicate()
        assert contents(results).items() <= undisturbed_study.items()
    subprocess.run(lab.command(results), check=True, capture_output=True)
    assert contents(results) == undisturbed_study
    leftovers = [path for path in results.rglob(".*") if path.name != ".lock"]
    assert leftovers == []
    assert list((results / "models").iterdir()) == []


@pytest.mark.slow
def test_control_c_keeps_what_is_finished(
    lab: Lab, tmp_path: Path, undisturbed_study: dict[str, dict]
) -> None:
    results = tmp_path / "results"
    process = start(lab.command(results))
    wait_for(lambda: len(list((results / "runs").glob("*.json"))) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    said = f"interrupted; {results} holds what is finished: the same command goes on from there"
    assert errors.splitlines()[-1] == f"pyquant: {said}"
    assert 2 <= len(contents(results)) < len(undisturbed_study)
    assert contents(results).items() <= undisturbed_study.items()
    subprocess.run(lab.command(results), check=True, capture_output=True)
    assert contents(results) == undisturbed_study


def test_a_killed_worker_is_reported(lab: Lab, tmp_path: Path) -> None:
    def kill_children(status: Status) -> None:
        if status.running:
            for child in multiprocessing.active_children():
                child.kill()

    with pytest.raises(StudyError, match="a worker process was killed"):
        lab.run(tmp_path / "results", watch=kill_children)
    lab.run(tmp_path / "results", lab.write("size.toml", ["size"]))


def test_two_at_once_are_refused(lab: Lab, copied_study: Path) -> None:
    before = snapshot(copied_study)
    with (
        Store(copied_study),
        pytest.raises(StudyError, match=f"another study is at work.*process {os.getpid()}"),
    ):
        lab.run(copied_study)
    assert snapshot(copied_study) == before
    lab.run(copied_study)


@pytest.mark.ci
def test_one_failure_does_not_stop_the_others(lab: Lab, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("the")
    study = read_study(lab.config, models=lab.models[:1], texts=[lab.text, short])
    said: list[Status] = []
    with pytest.raises(StudyError, match=r"1 of 11 tasks failed[^:]*:\n.*short\.txt: too short: \d+ tokens"):
        run_study(study, tmp_path / "results", workers=1, watch=said.append)
    assert len(said[0].running) <= 1  # others wait for the worker
    assert any(status.running for status in said)
    kinds = [path.name.partition("-")[0] for path in (tmp_path / "results" / "runs").glob("*.json")]
    assert kinds.count("quality") == kinds.count("speed") == 5
    assert len(list((tmp_path / "results" / "models").iterdir())) == 4  # kept until the text is mended
    results = read_results(Store(tmp_path / "results"))
    assert not results.complete
    assert "not finished" in (tmp_path / "results" / "report.html").read_text()


Refuse = Callable[[Callable[[Task], bool], Exception], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let tasks fail, which run in this process: those of which something holds, by an exception."""

    def refuse(is_refused: Callable[[Task], bool], error: Exception) -> None:
        def work(task: Task, *arguments: Any) -> Outcome:
            if is_refused(task):
                raise error
            return perform(task, *arguments)

        monkeypatch.setattr(run_module, "perform", work)
        monkeypatch.setattr(executor, "local", lambda _: ThreadPoolExecutor(1))

    return refuse


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Unable to allocate 9 TiB"), "Unable to allocate 9 TiB"),
        (MemoryError(), "not enough memory"),
        (ValueError("of somebody's scheme"), "ValueError: of somebody's scheme"),
    ],
    ids=repr,
)
def test_whatever_a_task_raises_does_not_stop_the_others(
    lab: Lab, tmp_path: Path, refuse: Refuse, error: Exception, said: str
) -> None:
    refuse(lambda task: task.name.endswith("balanced"), error)
    with pytest.raises(StudyError, match=r"1 of 5 tasks failed") as failed:
        lab.run(tmp_path / "results", lab.write("size.toml", ["size"]))
    assert str(failed.value).endswith(f"q8_table balanced: {said}")
    assert len(contents(tmp_path / "results")) == 4


def test_nothing_is_measured_from_another_model_than_the_base(
    lab: Lab, tmp_path: Path, refuse: Refuse
) -> None:
    refuse(lambda task: task.metric == "size" and task.modes == (None,), OSError(errno.EIO, "a broken disk"))
    with pytest.raises(StudyError, match=r"not begun, for want of model-1\.gguf unquantized"):
        lab.run(tmp_path / "results", lab.write("base.toml", ["size", "quality"]))
    assert not list((tmp_path / "results" / "runs").glob("quality-*"))


@pytest.mark.parametrize("changed", ["text", "model"])
def test_what_changes_meanwhile_is_not_what_was_planned(
    lab: Lab, tmp_path: Path, refuse: Refuse, changed: str
) -> None:
    refuse(lambda _: False, MemoryError())
    given = {"text": lab.text, "model": lab.models[0]}
    given = {name: Path(shutil.copy(file, tmp_path / name)) for name, file in given.items()}

    def change(status: Status) -> None:
        if status.finished and status.done == 1:
            given[changed].write_bytes(given[changed].read_bytes() + b" ")

    config, results = lab.write("given.toml", ["size", "quality"]), tmp_path / "results"
    study = read_study(config, models=[given["model"]], texts=[given["text"]])
    with pytest.raises(StudyError, match=f"{given[changed]}: changed while the study ran"):
        run_study(study, results, workers=1, watch=change)
    n_sizes = {"text": 5, "model": 1}[changed]
    assert [name.partition("-")[0] for name in contents(results)] == ["size"] * n_sizes
    assert len(list((results / "models").iterdir())) == n_sizes - 1


def test_a_report_that_fails_hides_no_failed_task(
    lab: Lab, tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(_: Store) -> str:
        raise StudyError("no report")

    monkeypatch.setattr(run_module, "report", report)
    config = lab.write("size.toml", ["size"])
    refuse(lambda task: task.name.endswith("balanced"), MemoryError("too large"))
    with pytest.raises(StudyError, match="q8_table balanced: too large"):
        lab.run(tmp_path / "results", config)
    refuse(lambda _: False, MemoryError())
    with pytest.raises(StudyError, match="no report"):
        lab.run(tmp_path / "results", config)


def test_what_a_killed_worker_left_goes(lab: Lab, copied_study: Path) -> None:
    (copied_study / "models" / ".0.pqz.unpacked").write_bytes(b"GGUF")
    (copied_study / "models" / ".1.gguf.stages").mkdir()
    lab.run(copied_study)
    assert list((copied_study / "models").iterdir()) == []


@pytest.fixture
def scheduler(tmp_path: Path):
    """A Dask scheduler and a worker of it; the scheduler's file."""
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    local = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    commands = [
        [*dask, "scheduler", "--port", "0", *local],
        [*dask, "worker", "--nthreads", "1", "--local-directory", str(tmp_path), *local],
    ]
    with (tmp_path / "dask.log").open("w") as log:
        processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
        yield file
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.mark.slow
def test_a_cluster_makes_the_same_results(
    lab: Lab, tmp_path: Path, undisturbed_study: dict[str, dict], scheduler: Path
) -> None:
    end = time.monotonic() + 60
    while not scheduler.is_file() and time.monotonic() < end:
        time.sleep(0.05)
    done = subprocess.run(
        lab.command(tmp_path / "results", "--cluster", scheduler),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "results") == undisturbed_study


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("none.json", "no such scheduler file"),
        ("somewhere", r"expected a scheduler file \(.json\) or tcp://"),
    ],
)
def test_a_cluster_that_is_not_there(lab: Lab, tmp_path: Path, where: str, message: str) -> None:
    pytest.importorskip("distributed")
    with pytest.raises((ConfigError, StudyError), match=message):
        lab.run(tmp_path / "results", cluster=where)


def test_gpus_of_a_cluster_are_its_workers_to_choose(lab: Lab, tmp_path: Path) -> None:
    command = lab.command(tmp_path / "results", "--cluster", "scheduler.json", "-ngl", "all")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "LLAMA_ARG_N_GPU_LAYERS" in done.stderr


def test_ctrl_c_does_not_reach_a_worker_that_is_starting() -> None:
    with local(1) as pool:
        answer = pool.submit(os.getpid)
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid, signal.SIGINT)  # it is loading Python's modules
        assert answer.result() == worker.pid
        held = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
    assert signal.SIGINT not in held
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
