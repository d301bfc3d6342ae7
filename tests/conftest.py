from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from models import MODELS, Model

# Fixtures of the study's tests.
from studies import copied_study, finished_study, lab, undisturbed_study  # noqa: F401

ROOT = Path(__file__).parents[1]
WORDS = ["the", "inner", "theatre", "ate", "a", "tin", "of", "ether;", "then", "rain,", "again", "tea\n"]

# Deadlines measure how busy the machine is; failing examples are printed to be kept as tests.
settings.register_profile("pyquant", deadline=None, max_examples=50, print_blob=True)
settings.load_profile("pyquant")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow; --slow runs it"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with trained models and texts that lies beside the repository."""
    folder = ROOT.parent / "shared"
    if not (folder / "models").is_dir():
        pytest.skip(f"no trained models: {folder} does not exist")
    return folder


@dataclass(frozen=True)
class Oracle:
    """Stock llama.cpp's own tools."""

    folder: Path

    def run(self, tool: str, *arguments: object) -> str:
        """Runs a tool; returns what it printed."""
        command = [self.folder / tool, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        output = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{tool}: exit status {done.returncode}\n{output[-3000:]}"
        return output

    def run_until(self, pattern: str, tool: str, *arguments: object) -> str:
        """Runs a tool until what it prints matches: at times llama-perplexity leaves out its last lines."""
        for _ in range(5):
            printed = self.run(tool, *arguments)
            if re.search(pattern, printed):
                return printed
        pytest.fail(f"{tool} does not print {pattern!r}:\n{printed[-2000:]}")

    def refuses(self, pattern: str, tool: str, *arguments: object) -> None:
        """Runs a tool that has to fail until what it prints matches: its last lines may be left out, and of
        a tool that fails at once they mostly are."""
        for _ in range(40):
            with pytest.raises(AssertionError) as refusal:
                self.run(tool, *arguments)
            if re.search(pattern, str(refusal.value)):
                return
        pytest.fail(f"{tool} does not say {pattern!r}:\n{refusal.value}")

    def quantize(self, source: Path, output: Path, kind: str, *options: object) -> Path:
        self.run("llama-quantize", *options, source, output, kind, 2)
        return output


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    folder = Path(os.environ.get("PYQUANT_ORACLE", ROOT / "build" / "oracle" / "bin"))
    if not (folder / "llama-quantize").is_file():
        pytest.skip(f"no stock llama.cpp in {folder}; `make oracle` builds it")
    return Oracle(folder)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a model of `models.MODELS` by name, once."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = MODELS[name].write(tmp_path_factory.mktemp("models") / "model.gguf")
        return made[name]

    return make


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 20,000 characters that `models` can spell."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    words = np.random.default_rng(1).choice(WORDS, 4000)
    path.write_text(" ".join(words) + "\n", encoding="utf-8")
    return path


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
