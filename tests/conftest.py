from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from pyquant import _core, data
from pyquant.calibration.calibrate import calibrate_model
from pyquant.rounding.factors import GRID_TYPES
from tests.support import ROOT, tiers

# Fixtures of several folders of tests.
from tests.support.every_command import command_folder  # noqa: F401
from tests.support.models import IN_THE_BOX, MODELS, Model
from tests.support.once import common_folder, made_once
from tests.support.oracle import Oracle
from tests.support.studies import (  # noqa: F401
    copied_study,
    finished_study,
    lab,
    lab_inputs,
    undisturbed_study,
)

WORDS = ["the", "inner", "theatre", "ate", "a", "tin", "of", "ether;", "then", "rain,", "again", "tea\n"]

# A shell ignores Ctrl-C for what it runs in the background, and processes inherit that: tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines measure how busy the machine is, and so does "too slow"; that many random grammars are refused is
# chance. Failing examples are printed to be kept as tests.
settings.register_profile(
    "pyquant",
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("pyquant")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=tiers.TIERS, default="test", help="which tests run; default: test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if any("::" in word for word in config.args):  # a test that is named runs
        return
    tier = config.getoption("--tier")
    out = [item for item in items if tiers.left_out(item, tier)]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if not tiers.left_out(item, tier)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    tiers.begin(item)
    yield
    if problem := tiers.too_long(item):
        pytest.fail(problem, pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let tests, and the processes that they start, keep caches away from those of the user."""
    os.environ["PYQUANT_CACHE"] = str(common_folder(tmp_path_factory) / "cache")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with trained models and texts that lies beside the repository.

    For what the bundled model cannot show: other tokenizers and shapes, a text of another kind, and
    thresholds that were measured on these.
    """
    folder = ROOT.parent / "shared"
    if not (folder / "models").is_dir():
        pytest.skip(f"no trained models: {folder} does not exist")
    return folder


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    folder = Path(os.environ.get("PYQUANT_ORACLE", ROOT / "build" / "oracle" / "bin"))
    if not (folder / "llama-quantize").is_file():
        pytest.skip(f"no stock llama.cpp in {folder}; `make oracle` builds it")
    return Oracle(folder)


@pytest.fixture(scope="session")
def ggml_grids() -> None:
    """Let GGML look for the neighbors of its grids' points, once a process: it takes 5 s."""
    for type_ in GRID_TYPES:
        _core.ggml_encoder(int(type_)).encode(np.ones((1, 256), np.float32), np.ones(256, np.float32))


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a model of `models.MODELS` by name, once."""

    @cache
    def make(name: str) -> Path:
        def write(folder: Path) -> None:
            MODELS[name].write(folder / "model.gguf")

        return made_once(tmp_path_factory, f"model {name}", write) / "model.gguf"

    return make


@pytest.fixture
def source(request: pytest.FixtureRequest) -> Path:
    """A model by its name, as an indirect parameter: one of `models.MODELS`, or the bundled one."""
    if request.param == IN_THE_BOX:
        return data.model_path()
    return request.getfixturevalue("generated")(request.param)


@pytest.fixture(scope="session")
def held_out_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text that the bundled model was not trained on, about 300 KB."""
    path = tmp_path_factory.mktemp("text") / "held_out.txt"
    path.write_text(data.evaluation_text(), encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="session")
def training_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of what the bundled model was trained on."""
    path = tmp_path_factory.mktemp("text") / "training.txt"
    path.write_text(data.training_text(), encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 20,000 characters that `models` can spell."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    words = np.random.default_rng(1).choice(WORDS, 4000)
    path.write_text(" ".join(words) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def stats_of(generated: Callable[[str], Path], text: Path, tmp_path_factory) -> Callable[[str], Path]:
    """HESSIAN of a generated model, of more tokens than its rows are long, and beside it its imatrix."""

    @cache
    def make(name: str) -> Path:
        def calibrate(folder: Path) -> None:
            imatrix = folder / "imatrix.gguf"
            calibrate_model(
                generated(name), [text], folder / "stats.gguf", n_ctx=64, n_chunks=16, imatrix=imatrix
            )

        return made_once(tmp_path_factory, f"stats {name}", calibrate) / "stats.gguf"

    return make


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few KB; one layer, rows of 32."""
    model = Model(n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2, tied=True, n_vocab=300)
    return model.write(tmp_path_factory.mktemp("small") / "small.gguf")


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)
