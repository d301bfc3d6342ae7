"""Files of TOML and JSON that would take their readers, or what handles their content, too far."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.errors import ConfigError
from pyquant.files.json import parse_json
from pyquant.files.nesting import DEEPEST
from pyquant.files.toml import LARGEST, read_toml
from tests.support.command import run

TOO_DEEP = f"nested more than {DEEPEST} deep"
LISTS = "[" * 5000 + "]" * 5000
TABLES = '{"a":' * 5000 + "1" + "}" * 5000


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (f"a = {LISTS}", TOO_DEEP),
        ("a = " + "{a = " * 5000 + "1" + "}" * 5000, TOO_DEEP),
        ("a." * 5000 + "a = 1", TOO_DEEP),
        ("[" + "'a' . " * 200_000 + "a]", TOO_DEEP),  # tomllib would take 80 GB
        ("[[a]]\n" + "[[" + "a." * DEEPEST + "a]]", TOO_DEEP),
        ("a = " + "[" * DEEPEST + "{a = 1}" + "]" * DEEPEST, TOO_DEEP),
        ("a = " + "9" * 5000, "more than 64 bits"),
        ("a = 0x" + "f" * 5000, "more than 64 bits"),
        ("# " + "a" * LARGEST, f"larger than {LARGEST:,} bytes"),
        ("a = 1\na = 2", "Cannot overwrite"),
    ],
)
def test_toml_that_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = write(tmp_path / "file.toml", content)
    with pytest.raises(ConfigError) as raised:
        read_toml(path, "table")
    assert str(raised.value).startswith(f"{path}: not a readable TOML file: ")
    assert says in str(raised.value)


def test_toml_that_is_not(tmp_path: Path) -> None:
    for content in ("a = " + "[" * (DEEPEST - 2) + "]" * (DEEPEST - 2), "a = [" + "0.5, " * 9999 + "]"):
        assert "a" in read_toml(write(tmp_path / "file.toml", content), "table")


def test_json_that_is_refused() -> None:
    for content in (LISTS, TABLES, "[" * 100 + "]" * 100, "9" * 5000, "1" + "0" * 30):
        with pytest.raises(ValueError, match=f"{TOO_DEEP}|more than 64 bits"):
            parse_json(content)


@pytest.mark.parametrize("content", [LISTS, TABLES, f'{{"schema": {LISTS}}}'])
def test_commands_name_the_file(tmp_path: Path, content: str) -> None:
    toml, json = write(tmp_path / "a.toml", f"a = {LISTS}"), write(tmp_path / "a.json", content)
    results = tmp_path / "results"
    results.mkdir()
    broken = write(results / "study.json", content)
    for arguments, named in (
        (("study", "run", toml), toml),
        (("tables", "check", toml), toml),
        (("tables", "build", json), json),
        (("study", "ls", results), broken),
    ):
        ran = run(*arguments)
        assert ran.returncode in (1, 2), ran
        assert ran.stderr.count("\n") == 1, ran.stderr
        assert str(named) in ran.stderr
