"""The extension that is loaded: the best of those installed that this CPU runs, or the one that is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyquant
from pyquant import _core, _cpu
from tests.support.command import ENVIRONMENT, run

# What a machine without AVX2 finds.
OLD_CPU = """
import sys
from pyquant import _cpu
import importlib.util
_cpu.variants = list
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "pyquant._core_native" else find(name)
from pyquant.__main__ import main
sys.argv = ["pyquant", "info"]
main()
"""


NOT_COMPILED = """
import sys
sys.modules["pyquant._cpu"] = None
from pyquant.__main__ import main
sys.argv = ["pyquant", "info"]
main()
"""


def test_the_module_is_the_variant_in_its_place() -> None:
    variant = _core.build_info()["variant"]
    assert variant in ("native", *_cpu.variants())
    assert f"_core_{variant}." in _core.__file__
    assert _core.__name__ == _core.Gguf.__module__ == "pyquant._core"


def test_a_variant_by_its_name() -> None:
    variant = _core.build_info()["variant"]
    done = run("info", environment=ENVIRONMENT | {"PYQUANT_CPU": variant})
    assert done.returncode == 0
    assert f"{variant}, in {_core.__file__}" in done.stdout


@pytest.mark.parametrize("command", ["info", "perplexity"])
def test_a_variant_that_is_not_there(command: str) -> None:
    arguments = [] if command == "info" else ["model.gguf", "--text", "text.txt"]
    done = run(command, *arguments, environment=ENVIRONMENT | {"PYQUANT_CPU": "vax"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pyquant: PYQUANT_CPU=vax: here run ")
    assert len(done.stderr.splitlines()) == 1


def test_a_cpu_that_runs_none() -> None:
    done = subprocess.run([sys.executable, "-c", OLD_CPU], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pyquant: this CPU ")
    assert done.stderr.endswith("AVX2, FMA and F16C: build pyquant from source on this machine\n")
    assert len(done.stderr.splitlines()) == 1


def test_source_that_is_not_compiled_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", NOT_COMPILED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    folder = Path(pyquant.__file__).parents[1]
    assert done.stderr.startswith(f"pyquant: {folder}: pyquant's source, not compiled: ")


def test_info_lists_tensors_of_a_model_alone() -> None:
    done = run("info", "--tensors")
    assert done.returncode == 2
    assert done.stderr == "pyquant: --tensors: lists those of a model; give MODEL.gguf\n"


def test_what_would_end_the_process_is_refused() -> None:
    weights, hessian = np.ones(32, np.float32), np.eye(32, dtype=np.float32)
    calls = [
        lambda: _core.ggml_encoder(50), lambda: _core.ggml_encoder(1000), lambda: _core.row_bytes(4, 32),
        lambda: _core.row_bytes(12, 100), lambda: _core.Gguf().add_tensor("a", 50, [32]),
        lambda: _core.factorize(hessian, dampening=0.1, together=0),
        lambda: _core.gptq_encoder(2, None), lambda: _core.ecsq_encoder([1.0], None),
        lambda: _core.Gguf().set_text("", "x"), lambda: _core.Gguf().set_u32("general.alignment", 3),
        lambda: _core.independent(np.full(32, np.nan, np.float32)),
        lambda: _core.round_rows(
            np.ones((32, 32), np.float32), rows=_core.independent(weights), encoder=_core.ggml_encoder(2),
            together=32, n_threads=1,
        ),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            call()
