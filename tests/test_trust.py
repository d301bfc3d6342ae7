"""Promises of docs/threat_model.md: nothing runs what a file says, and no file leads to another one."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from tests.support import ROOT
from tests.support.links import problems_of
from tests.support.models import Model

SOURCES = sorted((ROOT / "pyquant").rglob("*.py"))
PAGE = ROOT / "docs" / "threat_model.md"
# Modules that make objects, and so calls, of a file's bytes; and functions that run text.
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}
# Arguments that they must not be given: allow_pickle, and shell.
LOADS = {"load", "save", "savez", "savez_compressed", "fromfile", "read_array"}
PROCESSES = {"run", "Popen", "call", "check_call", "check_output"}
# The one place that runs a file, and it is one that the user names to be run.
EXTENSION = ROOT / "pyquant" / "_core.py"  # runs what was compiled
RUNS = ROOT / "pyquant" / "files" / "python_file.py"
# Those that let it: for --scheme, and for --task.
LETS_RUN = [
    ROOT / "pyquant" / "generation" / "structured" / "outside.py",
    ROOT / "pyquant" / "schemes" / "outside.py",
]


def of_nothing(call: ast.Call) -> bool:
    # exec("") runs no text: it takes back what Python noted of an earlier KeyboardInterrupt.
    return [getattr(argument, "value", None) for argument in call.args] == [""] and not call.keywords


def unsafe(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if isinstance(node.func, ast.Name) and name in UNSAFE_CALLS and not of_nothing(node):
                yield name
            refused = {"shell": PROCESSES, "allow_pickle": LOADS}
            yield from (
                f"{name}({keyword.arg})"
                for keyword in node.keywords
                if name in refused.get(str(keyword.arg), ())
                and getattr(keyword.value, "value", True) is not False
            )


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from yaml import load", "eval('1')", "exec(x)", "np.load(f, allow_pickle=True)",
     "np.load(f, allow_pickle=x)", "subprocess.run(x, shell=True)"],
)  # fmt: skip
def test_what_is_unsafe_is_seen(text: str) -> None:
    assert list(unsafe(ast.parse(text)))


def test_nothing_makes_objects_or_calls_of_a_file() -> None:
    assert len(SOURCES) > 100
    listed = {path: list(unsafe(ast.parse(path.read_text()))) for path in SOURCES}
    assert {str(path): names for path, names in listed.items() if names} == {}


def test_files_of_python_are_run_in_one_place() -> None:
    runs = [path for path in SOURCES if "exec_module" in path.read_text() or "run_path" in path.read_text()]
    assert runs == [EXTENSION, RUNS]
    lets_run = [path for path in SOURCES if "run_python_file" in path.read_text() and path != RUNS]
    assert lets_run == LETS_RUN


# Reads every file it is given with all readers, and says which other files are opened.
WATCHED = """
import json, sys
from pathlib import Path
from pyquant.errors import PyquantError
from pyquant.models.info import model_info
from pyquant.models.model_file import ModelFile
from pyquant.study.results.read import read_results
from pyquant.study.report.tables import items_table, results_table
from pyquant.study.report.html import report
from pyquant.study.store import Store
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
folder, model = Path(sys.argv[1]), Path(sys.argv[2])
model_info(ModelFile(model)).to_json()
for read in (
    lambda store: results_table(read_results(store)),
    lambda store: items_table(read_results(store), "quality"),
    lambda store: [store.problem(key) for key in store.finished()],
    report,
):
    try:
        read(Store(folder))
    except PyquantError:
        pass
print(json.dumps(opened))
"""


def opened_by_all_readers(folder: Path, model: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, folder, model], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("place", ["items", "key", "study", "names"])
def test_no_path_from_a_files_content_is_opened(place: str, copied_study: Path, tmp_path: Path) -> None:
    bait = tmp_path / "bait.json"
    bait.write_text("{}")
    (tmp_path / "bait.npz").write_bytes(b"")
    path = next((copied_study / "runs").glob("quality-*.json"))
    away = f"../../../../../../../../..{tmp_path}/bait"
    record = json.loads(path.read_text())
    study = json.loads((copied_study / "study.json").read_text())
    if place == "items":
        record["items"]["file"] = f"{away}.npz"
    elif place == "key":
        record["key"] = away
    elif place == "names":
        record["provenance"]["names"] = dict.fromkeys(record["provenance"]["names"], str(bait))
        record["inputs"] = dict.fromkeys(record["inputs"], str(bait))
    else:
        for row in study["models"][0]["rows"]:
            row["quality"] = [away]
            row["size"] = str(bait.with_suffix(""))
    path.write_text(json.dumps(record))
    (copied_study / "study.json").write_text(json.dumps(study))

    class Named(Model):
        def add_to(self, writer: gguf.GGUFWriter) -> None:
            for key in ("general.name", "pyquant.calibration", "quantize.imatrix.file", "general.source.url"):
                writer.add_string(key, str(bait))
            super().add_to(writer)

    model = Named().write(tmp_path / "model.gguf")
    opened = opened_by_all_readers(copied_study, model)
    assert any(name.endswith("study.json") for name in opened)  # readers are watched
    assert [name for name in opened if "bait" in name] == []


def test_every_bound_of_the_page_has_a_test() -> None:
    bounds = PAGE.read_text().partition("It may not:\n\n")[2].partition("\n\n")[0].splitlines()
    assert len(bounds) == 11
    assert [row for row in bounds if "../tests/" not in row] == []
    assert list(problems_of(PAGE, ROOT)) == []
