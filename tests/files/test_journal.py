"""Lists of finished work."""

from __future__ import annotations

from pathlib import Path

from pyquant.files.journal import Journal
from pyquant.files.kept import not_used


def opened(path: Path, made_of: bytes = b"model", refused: str = "") -> Journal[str]:
    return Journal(path, [made_of], lambda line: None if line == refused else line.upper())


def test_lines_are_there_again(tmp_path: Path) -> None:
    journal = opened(tmp_path / "done")
    assert not (tmp_path / "done").exists()  # where nothing was finished nothing is left
    for line in ("a", "b", "c"):
        journal.add(line)
    assert opened(tmp_path / "done").entries == ["A", "B", "C"]
    opened(tmp_path / "done").add("d")
    assert opened(tmp_path / "done").entries == ["A", "B", "C", "D"]


def test_a_line_that_is_cut_off_is_removed(tmp_path: Path) -> None:
    journal = opened(tmp_path / "done")
    journal.add("first é")
    journal.add("second")
    (tmp_path / "done").write_bytes((tmp_path / "done").read_bytes()[:-3])
    again = opened(tmp_path / "done")
    assert again.entries == ["FIRST É"]
    again.add("third")
    assert opened(tmp_path / "done").entries == ["FIRST É", "THIRD"]


def test_what_is_not_used_is_gone_at_once(tmp_path: Path) -> None:
    """Else a run that takes nothing up, and is killed too, leaves for the next what it did not make."""
    opened(tmp_path / "done").add("a")
    assert opened(tmp_path / "done", refused="a").entries == []
    assert opened(tmp_path / "done").entries == []
    opened(tmp_path / "done").add("a")
    told: list[str] = []
    for _ in range(2):  # the second time nothing is there
        assert Journal(tmp_path / "done", [b"another"], str.upper, told.append).entries == []
    assert told == [not_used(tmp_path / "done")]
    assert not (tmp_path / "done").exists()
    (tmp_path / "done").write_bytes(b"\xff\xfe")
    assert opened(tmp_path / "done").entries == []
