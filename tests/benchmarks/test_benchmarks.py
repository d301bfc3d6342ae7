"""That benchmarks start, and who may import what of tests."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


def imported_tests(folder: str) -> dict[str, set[str]]:
    """Give what each file below a folder of the repository imports from tests/."""
    files = list((ROOT / folder).rglob("*.py"))
    assert files, folder
    found = {str(path): {name for name in imported(path) if name.startswith("tests.")} for path in files}
    return {path: names for path, names in found.items() if names}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_benchmarks_start() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "gptq" in done.stdout


@pytest.mark.parametrize("folder", ["pyquant", "benchmarks", "analysis", "recipe"])
def test_only_tests_import_tests(folder: str) -> None:
    assert not imported_tests(folder)


SHARED = ("tests.support.", "tests.twins.", "tests.generation.twins.")
PROGRAMS = ("fuzz", "trial")  # folders of tests/ with programs of several files


def test_tests_import_only_what_they_share() -> None:
    for path, names in imported_tests("tests").items():
        own = [f"tests.{folder}." for folder in PROGRAMS if f"/{folder}/" in str(path)]
        assert all(name.startswith((*SHARED, *own)) for name in names), (path, names)
