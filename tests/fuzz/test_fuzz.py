"""Readers, fuzzed for some seconds each; `make fuzz SECONDS=3600` takes longer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.block_layout import block_bytes, kernel
from tests.support import ROOT
from tests.support.fuzz_targets import CORPUS, TARGETS, NoFuzzer, command_of, frame_layouts, fuzz


@pytest.mark.parametrize(
    "seconds", [pytest.param(5, marks=pytest.mark.ci), pytest.param(30, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_ends_a_reader(target: str, seconds: int, tmp_path: Path) -> None:
    try:
        said = fuzz(target, tmp_path, seconds)
    except NoFuzzer as error:
        pytest.skip(str(error))
    assert " executions, " in said


def inputs(target: str) -> list[Path]:
    found = sorted((CORPUS / target).iterdir())
    assert len(found) > 10
    return found


def test_the_corpus_of_headers_is_read_or_refused() -> None:
    refused = 0
    for path in inputs("gguf_header"):
        try:
            ModelFile(path)
        except ModelFileError:
            refused += 1
    assert refused > 0


def test_the_corpus_of_frames_is_expanded_or_refused() -> None:
    layouts, refused = frame_layouts(), 0
    for path in inputs("pqz_frame"):
        data = path.read_bytes()
        if len(data) < 3:
            continue
        layout = layouts[data[0] % len(layouts)]
        n_bytes = (data[1] + 256 * (data[2] % 16)) * block_bytes(layout)
        try:
            _core.decode_frame(kernel(layout), data[3:], n_bytes)
        except ValueError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("target", ["pqz_index", "hessian_header"])
def test_the_corpora_of_python_are_read_or_refused(target: str) -> None:
    """Atheris ends by an exception that is not pyquant's, and says how many inputs it ran."""
    found = inputs(target)
    try:
        command = command_of(target, CORPUS)
    except NoFuzzer as error:
        pytest.skip(str(error))
    ran = subprocess.run([*command, *map(str, found)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stderr.count("Executed ") == len(found)
