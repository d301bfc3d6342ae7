"""The command line as a user meets it: what goes where, exit statuses, and what README says of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.command import ENVIRONMENT, commands, run
from tests.support.models import Model


@pytest.fixture
def model(generated: Callable[[str], Path]) -> Path:
    return generated("f32, rows of 64 and 96")


def test_readme_shows_every_command():
    readme = (ROOT / "README.md").read_text()
    names = {name.partition(" ")[0] for name in commands()}
    missing = [name for name in names if not re.search(rf"`(pyquant )?{name}`", readme)]
    assert not missing


def test_results_go_to_stdout_and_remarks_to_stderr(model: Path, tmp_path: Path):
    quantized = tmp_path / "q4_0.gguf"
    made = run("quantize", "--mode", "q4_0", "--json", model, quantized)
    assert json.loads(made.stdout)["output"] == str(quantized)
    counted = run("histogram", "--json", quantized)
    assert "Q4_0" in [total["type"] for total in json.loads(counted.stdout)["totals"]]
    shown = run("histogram", quantized)
    assert re.search(r"entropy +\d\.\d{4} bits per code", shown.stdout)


def test_a_pipe_that_closes_is_no_traceback(model: Path):
    shown = subprocess.run(
        f"{sys.executable} -m pyquant histogram --mode q8_0 --json {model} | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stdout == '{\n  "schem'
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["quantize", "--mode", "q4_0", "MODEL", "MODEL"], 1, "never overwritten"),
        (["quantize", "--mode", "q4_0", "no.gguf", "out.gguf"], 1, "no such file"),
        (["quantize", "MODEL", "out.gguf"], 2, "a TYPE such as Q4_K_M is needed, or one of --mode, --scheme"),
        (["quantize", "--mode", "q9", "MODEL", "out.gguf"], 2, "choices: "),
        (["quantize", "--mode", "q4_0_multizero", "--radius", "8", "MODEL", "out.gguf"], 2, "radius"),
        (["quantize", "--mode", "q8_table", "MODEL", "out.gguf"], 2, "needs 'table'"),
        (["quantize", "--mode", "q8_table", "--table", "bsic", "MODEL", "out.gguf"], 2, "basic, balanced"),
        (["quantize", "--mode", "q4_0", "--no-such-flag", "MODEL", "out.gguf"], 2, "No such option"),
        (["quantize", "--mode", "q4_0", "--ctx", "64", "MODEL", "out.gguf"], 2, "--ctx: is for a type or a"),
        (["quantize", "--mode", "q4_0", "--chunks", "3", "MODEL", "out.gguf"], 2, "--chunks: is for a type"),
        (["histogram", "MODEL"], 1, "--mode says through which quantizer"),
        (["histogram", "--mode", "q4_0", "--plot", "plot.jpeg", "MODEL"], 1, ".png, .svg, .pdf"),
        (["tables", "show", "no.toml"], 2, "no such table file"),
    ],
)
def test_mistakes_are_named(arguments, status, says, model: Path, tmp_path: Path):
    told = run(*(str(model) if a == "MODEL" else a for a in arguments), cwd=tmp_path)
    assert told.returncode == status
    assert says in re.sub(r"[\s│]+", " ", told.stderr)
    assert "Traceback" not in told.stderr
    assert not list(tmp_path.iterdir())


def test_statistics_are_no_model(stats_of: Callable[[str], Path]) -> None:
    told = run("histogram", stats_of("f32, rows of 64 and 96"))
    assert (told.returncode, told.stderr.count("\n")) == (1, 1)
    assert "no 'general.architecture' in its metadata: not a model" in told.stderr


def test_ctrl_c_leaves_nothing_and_says_so(tmp_path: Path):
    # A type that is slow to make: the signal comes in the middle of a tensor.
    source = Model(n_embd=1024, n_ff=4096, n_layer=2, n_head=8).write(tmp_path / "model.gguf")
    command = [sys.executable, "-m", "pyquant", "quantize", "--mode", "ggml:IQ4_NL", "--threads", "1"]
    process = subprocess.Popen(
        [*command, source, tmp_path / "out.gguf"], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    partial = tmp_path / ".out.gguf.partial"
    while not partial.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


HIT = """
import sys
class Hit:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Hit())
sys.argv = ["pyquant", "info", "model.gguf"]
from pyquant.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "pyquant.cli.memory", "pyquant.models.info"])
def test_ctrl_c_while_modules_are_loaded(module: str) -> None:
    done = run(script=HIT.format(module=module))
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


LOST = """
import signal, sys, weakref
class Lost:
    def find_spec(self, name, path, target=None):
        if name == "pyquant.models.info":
            {hit}
sys.meta_path.insert(0, Lost())
class Nothing: pass
def press(*_): signal.raise_signal(signal.SIGINT)
def become(error):
    try: press()
    except KeyboardInterrupt as pressed: raise error("of a library") from pressed
def drop():
    it = Nothing()
    weakref.finalize(it, press)
    del it
    import time
    time.sleep(10)
sys.argv = ["pyquant", "info", "model.gguf"]
from pyquant.__main__ import main
main()
"""


@pytest.mark.parametrize("hit", ["become(ValueError)", "become(SystemError)", "become(OSError)", "drop()"])
def test_ctrl_c_that_a_library_makes_something_else_of(hit: str) -> None:
    # pydantic's SchemaError was one, a weak reference of Python's own import system another.
    done = run(script=LOST.format(hit=hit))
    assert (done.returncode, done.stderr) == (130, "pyquant: interrupted; nothing half-written is left\n")


def test_ctrl_c_before_the_command_begins() -> None:
    script = "import pyquant.cli as cli\ndef hit(): raise KeyboardInterrupt\n"
    done = run(script=script + "cli.completion.asks = hit\ncli.main()")
    assert (done.returncode, done.stderr) == (130, "pyquant: interrupted; nothing half-written is left\n")


@pytest.mark.ci
@pytest.mark.parametrize(("tensors", "said"), [("blk", True), ("token_embd", False)])
def test_codes_of_8_bits_are_mentioned_where_there_are_some(
    small_model: Path, tmp_path: Path, tensors: str, said: bool
) -> None:
    text, stats = tmp_path / "text.txt", tmp_path / "stats"
    text.write_text("the animal in the house " * 60)
    calibrated = run("calibrate", small_model, "--text", text, "--ctx", 64, "--chunks", 2, "-o", stats)
    assert calibrated.returncode == 0, calibrated.stderr
    how = ["--mode", "ecsq", "--step", "0.05", "--hessian", stats, "--tensors", tensors]
    done = run("quantize", small_model, tmp_path / "out.gguf", *how)
    assert done.returncode == 0, done.stderr
    assert ("codes take 8 bits each" in done.stderr) == said
