"""Strings that are written into TOML are read as they were."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pyquant.files.toml import read_toml, toml_string


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_survives(tmp_path_factory, text: str) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "string.toml"
    path.write_text(f"{toml_string(text)} = {toml_string(text)}\n", encoding="utf-8")
    assert read_toml(path, "test") == {text: text}
