"""A study that is killed, interrupted or crowded goes on to the same results."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
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
    results = read_results(Store(tmp_path / "results"))
    assert not results.complete
    assert "not finished" in (tmp_path / "results" / "report.html").read_text()


def test_a_task_without_memory_does_not_stop_the_others(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, said = lab.write("size.toml", ["size"]), "Unable to allocate 9 TiB"

    refused: list[str] = []

    def refuse_first(task: Task, *arguments: Any) -> Outcome:
        if not refused:
            refused.append(task.name)
            raise MemoryError(said)
        return perform(task, *arguments)

    monkeypatch.setattr(run_module, "perform", refuse_first)
    monkeypatch.setattr(executor, "local", lambda _: ThreadPoolExecutor(1))
    with pytest.raises(StudyError, match=r"1 of .* tasks failed") as failed:
        lab.run(tmp_path / "results", study)
    assert str(failed.value).endswith(f"{refused[0]}: {said}")


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
