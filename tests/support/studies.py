"""A small study for tests, run once: fixtures, and what to compare of its results."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyquant import data
from pyquant.study.config import read_study
from pyquant.study.results.read import ModelResults, read_results
from pyquant.study.run import Summary, run_study
from pyquant.study.store import Store
from tests.support.models import Model
from tests.support.once import made_once

STUDY = """
title = "Small & <bold>"
ctx = 32
chunks = 3
measure = {measure}
[speed]
prompt = 8
generate = 4
rounds = 1
[[quantizer]]
mode = "q4_0_multizero"
radius = [0, 2]
[[quantizer]]
mode = ["q8_table"]
table = "balanced"
[[quantizer]]
mode = "ggml:Q4_K"
"""
EVERYTHING = ["codes", "size", "quality", "speed"]
SAME_EVERYWHERE = ["codes", "size", "quality"]  # speed is another one every time
LABELS = ["unquantized", "q4_0_multizero 0", "q4_0_multizero 2", "q8_table balanced", "ggml:Q4_K"]


def run_on_the_box(folder: Path, study: str) -> Path:
    """Run a study, given as TOML, on the bundled model; returns the folder of its results."""
    config = folder / "study.toml"
    config.write_text(study)
    run_study(read_study(config, models=[data.model_path()]), folder / "results", workers=1)
    return folder / "results"


def model_of(results: Path) -> ModelResults:
    """Return what a study of one model found."""
    return read_results(Store(results)).models[0]


SEEDS = (1, 2)


class Lab:
    """A folder with a study, and the models and the text that all such folders share."""

    def __init__(self, folder: Path, inputs: Path) -> None:
        self.folder = folder
        self.text = inputs / "text.txt"
        self.models = [inputs / f"model-{seed}.gguf" for seed in SEEDS]
        self.config = self.write("study.toml", EVERYTHING)
        self.same = self.write("same.toml", SAME_EVERYWHERE)

    def write(self, name: str, measure: list[str], more: str = "") -> Path:
        path = self.folder / name
        path.write_text(more + STUDY.format(measure=measure))
        return path

    def run(self, results: Path, config: Path | None = None, n_models: int = 1, **options: object) -> Summary:
        study = read_study(config or self.config, models=self.models[:n_models], texts=[self.text])
        return run_study(study, results, workers=1, command="made by a test", **options)

    def command(self, results: Path, *more: object) -> list[str]:
        words = [sys.executable, "-m", "pyquant", "study", "run", self.same]
        words += ["--model", self.models[0], "--model", self.models[1], "--text", self.text]
        return [str(word) for word in [*words, "--results", results, "--workers", 1, *more]]


def write_inputs(folder: Path) -> None:
    (folder / "text.txt").write_text("the rain in the hen then tin ant " * 30)
    for seed in SEEDS:
        Model(n_layer=1, seed=seed).write(folder / f"model-{seed}.gguf")


@pytest.fixture(scope="session")
def lab_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "study inputs", write_inputs)


@pytest.fixture(scope="session")
def lab(lab_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("study"), lab_inputs)


@pytest.fixture(scope="session")
def finished_study(lab_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of everything on one model. Not to be changed."""

    def run(folder: Path) -> None:
        Lab(folder, lab_inputs).run(folder / "finished")

    return made_once(tmp_path_factory, "study", run) / "finished"


@pytest.fixture(scope="session")
def undisturbed_study(lab_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """Give what is the same everywhere, of both models, in a study that nothing disturbed."""

    def run(folder: Path) -> None:
        own = Lab(folder, lab_inputs)
        own.run(folder / "undisturbed", own.same, n_models=2)

    return contents(made_once(tmp_path_factory, "undisturbed study", run) / "undisturbed")


@pytest.fixture
def copied_study(finished_study: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_study, tmp_path / "copy"))


def contents(results: Path) -> dict[str, dict]:
    """Every run's file by its name, without what is not the same everywhere; of items the hash is in it."""
    written = {path.name: json.loads(path.read_text()) for path in (results / "runs").glob("*.json")}
    return {
        name: {key: record[key] for key in record if key != "provenance"} for name, record in written.items()
    }


def snapshot(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(condition, process: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
