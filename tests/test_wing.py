"""The core does without the wing that writes text: nothing in it imports it, and every command works."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from pyquant import data
from tests.support import ROOT
from tests.support.command import commands, run
from tests.support.every_command import RESULTS

WING = "pyquant.generation"
OF_THE_WING = ("generate", "draft", "structured")
# Runs commands of a list of lists of words in one process, in which the wing cannot be imported.
WITHOUT_THE_WING = """
import contextlib, io, json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "pyquant.generation" or name.split(".")[0] in ("llguidance", "lark"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
from pyquant.cli import app

if __name__ == "__main__":
    printed = []
    for words in json.load(sys.stdin):
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            app(words, standalone_mode=False)
        printed.append(stream.getvalue())
    assert not any(name.startswith("pyquant.generation") for name in sys.modules)
    print(json.dumps(printed))
"""
STUDY = 'measure = ["size", "codes"]\n[[quantizer]]\nmode = "q4_0"\n'


def modules_of_the_core() -> Iterator[Path]:
    wing = ROOT / "pyquant" / "generation"
    return (path for path in (ROOT / "pyquant").rglob("*.py") if wing not in path.parents)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "an import by dots"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_nothing_in_the_core_imports_it() -> None:
    for path in modules_of_the_core():
        names = imported(ast.parse(path.read_text()))
        assert not [name for name in names if name.startswith(WING)], path


def test_one_module_of_the_core_names_it() -> None:
    naming = [path for path in modules_of_the_core() if WING in path.read_text()]
    assert naming == [ROOT / "pyquant" / "wings.py"]


def test_one_source_of_the_extension_includes_it() -> None:
    csrc = ROOT / "csrc"
    sources = [path for path in csrc.rglob("*") if path.suffix in (".h", ".cpp", ".inc")]
    including = [
        path.relative_to(csrc).as_posix()
        for path in sources
        if csrc / "generation" not in path.parents and re.search(r'#include "generation/', path.read_text())
    ]
    assert including == ["bindings/module.cpp"]


def without_the_wing(calls: list[list[str]], folder: Path) -> list[str]:
    done = run(script=WITHOUT_THE_WING, input=json.dumps(calls), cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_command_of_the_core_works_without_it(command_folder: Path) -> None:
    core = [command for command in RESULTS if command.split()[0] not in OF_THE_WING]
    calls = [[*command.split(), *RESULTS[command], "--json"] for command in core]
    for command, printed in zip(core, without_the_wing(calls, command_folder), strict=True):
        assert json.loads(printed)["schema"].startswith(f"pyquant.{command.replace(' ', '.')}/")


def test_studies_work_without_it(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    model = str(data.model_path())
    run_study = ["study", "run", "study.toml", "--model", model, "--results", "results", "--workers", "1"]
    shown = [["study", name, "results", "--json"] for name in ("ls", "show", "validate")]
    export = ["study", "export", "results", "table.csv"]
    _, *printed, _ = without_the_wing([run_study, *shown, export], tmp_path)
    assert len(json.loads(printed[0])["runs"]) == 3
    assert json.loads(printed[2])["problems"] == {}
    assert (tmp_path / "table.csv").is_file()


def test_commands_of_the_wing_are_not_there_without_it() -> None:
    names = {command.split()[0] for command in commands()}
    script = WITHOUT_THE_WING.partition("if __name__")[0] + "print(*app.registered_commands, sep='\\n')"
    done = run(script=script)
    assert done.returncode == 0, done.stderr
    assert not any(f"name='{name}'" in done.stdout for name in OF_THE_WING)
    assert set(OF_THE_WING) <= names


def test_a_metric_of_the_wing_is_unknown_without_it(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace("codes", "structured"))
    words = ["study", "run", "study.toml", "--model", str(data.model_path())]
    done = run(script=WITHOUT_THE_WING, input=json.dumps([words]), cwd=tmp_path)
    assert "got 'structured'" in done.stderr
