"""`tables show` and `tables check` take every table that other commands take or write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyquant.cli import app
from pyquant.errors import ConfigError
from pyquant.fit.learn_tables import learn_tables
from tests.support.command import run


@pytest.fixture(scope="module", params=["model", "kind", "tensor"])
def learned(
    request: pytest.FixtureRequest, small_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("tables") / f"per-{request.param}.toml"
    path.write_text(learn_tables(small_model, per=request.param, threads=1).to_toml())
    return path


@pytest.mark.ci
def test_learned_tables(learned: Path) -> None:
    ran = run("tables", "check", learned)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"{learned}: ")
    assert ran.stdout.endswith(", sound\n")
    shown = json.loads(run("tables", "show", learned, "--json").stdout)
    in_words = run("tables", "show", learned).stdout
    assert len(shown["values"]) == len(shown["lower"]) == 16
    by_name = shown["tables"]
    assert bool(by_name) == (learned.stem != "per-model")
    assert ("attn_q" in by_name) == (learned.stem == "per-kind")
    assert ("blk.0.attn_q.weight" in by_name) == (learned.stem == "per-tensor")
    for name, table in by_name.items():
        assert name in in_words
        assert sorted(set(table["values"])) == table["values"]
        assert len(table["lower"]) == 16


@pytest.mark.ci
def test_built_in_tables(small_model: Path) -> None:
    for name in ("basic", "balanced"):
        assert run("tables", "check", name).stdout == f"{name}: {name}, 16 values, sound\n"
        assert len(json.loads(run("tables", "show", name, "--json").stdout)["values"]) == 16
    box, other = run("tables", "show", "balanced"), run("tables", "show", "balanced", "--model", small_model)
    assert box.returncode == other.returncode == 0
    assert box.stdout != other.stdout
    refused = run("tables", "show", "basic", "--model", small_model)
    assert refused.returncode == 2
    assert "--model: is for TABLE `balanced`" in refused.stderr


@pytest.mark.ci
def test_a_table_of_a_set_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f"values = {list(range(16))}\n[tables]\nattn_q = [1, 2]\n")
    for command in ("check", "show"):
        ran = run("tables", command, path)
        assert ran.returncode == 2
        assert f"{path}: tables.attn_q: expected 16 integers" in ran.stderr


@pytest.mark.parametrize("name", ['a"b', "", "x" * 70, "a\nb"])
def test_no_table_is_built_of_a_name_that_none_can_have(tmp_path: Path, name: str) -> None:
    table, command = tmp_path / "table.toml", ["tables", "build", "model.gguf", "--name", name]
    with pytest.raises(ConfigError, match="--name: expected up to 64 printable characters without quotes"):
        CliRunner().invoke(app, [*command, "-o", str(table)], catch_exceptions=False)
    assert not table.exists()
