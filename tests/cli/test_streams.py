"""Standard streams that are full, closed, unread, of another encoding, or no terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ENVIRONMENT, run
from tests.support.models import Model

PYQUANT = f"{sys.executable} -m pyquant"


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def terminal(*arguments: object, columns: int, errors_too: bool = False, **environment: str) -> str:
    """Give what a command prints to a terminal of so many columns; errors_too: and what it says there."""
    ours, theirs = pty.openpty()
    width = {"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pyquant", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if errors_too else subprocess.DEVNULL,
        env={
            **{key: value for key, value in os.environ.items() if key != "NO_COLOR"},
            **width,
            **environment,
        },
    )
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 1 << 16):
            printed += piece
    except OSError:  # how Linux says that the other end has gone
        pass
    os.close(ours)
    assert process.wait(timeout=120) == 0
    return printed.decode().replace("\r\n", "\n")


@pytest.fixture
def model(generated: Callable[[str], Path]) -> Path:
    return generated("f32, rows of 64 and 96")


@pytest.fixture
def other(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model under another name: what is compared has to have two."""
    path = tmp_path_factory.mktemp("other") / "other.gguf"
    path.symlink_to(model)
    return path


@pytest.mark.parametrize("command", ["info", "tables list", "info --json", "--help", "--version"])
def test_a_full_disk_is_said(command: str):
    done = shell(f"{PYQUANT} {command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "pyquant: standard output: No space left on device\n"


@pytest.mark.parametrize("json_option", ["", "--json"])
def test_a_finished_comparison_is_not_lost(
    json_option: str, model: Path, other: Path, text: Path, tmp_path: Path
):
    command = f"{PYQUANT} compare {model} {other} --text {text} --ctx 64 --chunks 2 {json_option} >/dev/full"
    done = shell(command, TMPDIR=str(tmp_path))
    assert done.returncode == 1
    (kept,) = tmp_path.iterdir()
    assert f"No space left on device; the result is kept in {kept}" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(kept.read_text())["schema"] == "pyquant.compare/1"


def test_closed_streams_are_said(model: Path, tmp_path: Path):
    done = shell(f"{PYQUANT} quantize --mode q4_0 {model} {tmp_path}/out.gguf >&-")
    assert done.returncode == 1
    assert done.stderr == "pyquant: standard output is closed; `>/dev/null` is where unwanted results go\n"
    assert not list(tmp_path.iterdir())
    # Remarks to nobody do not end up among results.
    done = shell(f"{PYQUANT} histogram --mode q4_0 --plot {tmp_path}/codes.svg --json {model} 2>&-")
    assert json.loads(done.stdout)["schema"] == "pyquant.histogram/1"
    assert (tmp_path / "codes.svg").exists()


def test_what_an_encoding_lacks_is_escaped(model: Path, other: Path, text: Path):
    command = f"{PYQUANT} compare {model} {other} --text {text} --ctx 64 --chunks 2"
    done = shell(command, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert " \\xb1 " in done.stdout


@pytest.mark.ci
def test_a_reader_that_has_enough_is_no_failure(model: Path, finished_study: Path):
    done = shell(f"{PYQUANT} histogram --mode q8_0 --json {model} | head -c 10")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{\n  "schem', "")
    for command in (
        f"histogram --mode q8_0 {model}", "tables list", "--help", "info", f"study show {finished_study}",
        f"study show {finished_study} --json", f"study ls {finished_study} --json",
    ):  # fmt: skip
        done = shell(f"{PYQUANT} {command} | true")
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.ci
def test_remarks_that_nobody_reads_stop_nothing(model: Path, tmp_path: Path):
    command = f"{PYQUANT} quantize --mode ggml:Q4_K {model} {tmp_path}/out.gguf"
    assert "blocks of" in shell(command).stderr
    for nobody in ("2> >(true)", "2>/dev/full"):
        (tmp_path / "out.gguf").unlink()
        done = shell(f"{command} {nobody}")
        assert done.returncode == 0
        assert "written to" in done.stdout


@pytest.mark.parametrize("errors", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("command", ["tables list >&-", "info missing"])
def test_errors_that_nobody_reads_keep_their_status(command: str, errors: str):
    assert shell(f"{PYQUANT} {command} {errors}").returncode == 1


@pytest.mark.ci
@pytest.mark.parametrize("columns", [40, 80, 100])
def test_a_narrow_terminal_cuts_labels_not_figures(columns: int, model: Path, text: Path, tmp_path: Path):
    name = tmp_path / ("a-model-whose-name-is-long-" * 4 + "end.gguf")
    name.symlink_to(model)
    arguments = ["compare", model, name, "--text", text, "--ctx", 64, "--chunks", 4]
    figures = re.compile(r"[+-]?\d[\d,]*\.\d+(?: ± \d+\.\d+)?")
    wide = figures.findall(" ".join(run(*arguments).stdout.split()))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal(*arguments, columns=columns))
    assert sorted(figures.findall(" ".join(shown.split()))) == sorted(wide)
    assert max(map(len, shown.splitlines())) <= columns
    assert "end " in shown or columns == 40


@pytest.mark.ci
def test_no_color_is_honoured(model: Path, text: Path):
    """What has color is the bar, which goes to stderr."""
    color = re.compile(r"\x1b\[[0-9;]*[34][0-9]")
    arguments = ["perplexity", model, "--text", text, "--ctx", 64, "--chunks", 2]
    assert color.search(terminal(*arguments, columns=80, errors_too=True))
    shown = terminal(*arguments, columns=80, errors_too=True, NO_COLOR="1")
    assert "2/2 chunks" in shown
    assert not color.search(shown)


@pytest.mark.ci
def test_llama_cpp_s_lines_say_whose_they_are(text: Path, tmp_path: Path):
    class Nameless(Model):
        def add_tokenizer(self, writer) -> None:
            tokens = writer.add_token_list
            writer.add_token_list = lambda names: tokens([*names[:-1], ""])
            super().add_tokenizer(writer)

    model = Nameless().write(tmp_path / "model.gguf")
    done = run("perplexity", model, "--text", text, "--ctx", 64, "--chunks", 2)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "empty token" in line] == [
        line for line in done.stderr.splitlines() if line.startswith("llama.cpp: load: empty token at index")
    ]
    assert "empty token" in done.stderr
