"""The extension that is loaded: the best of those installed that this CPU runs, or the one that is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
