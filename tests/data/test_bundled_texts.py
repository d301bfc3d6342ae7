"""Bundled texts are what their hashes say, and nothing that calibration draws from."""

from __future__ import annotations

import hashlib

import pytest

from pyquant.data.bundled_texts import BUNDLED_TEXTS, FOLDER
from pyquant.data.stdlib import documents


def test_files_have_their_hashes() -> None:
    assert {text.path for text in BUNDLED_TEXTS} == set(FOLDER.iterdir())
    for text in BUNDLED_TEXTS:
        assert hashlib.sha256(text.path.read_bytes()).hexdigest() == text.sha256
        assert 30_000 < text.path.stat().st_size < 50_000


@pytest.mark.ci
def test_no_line_is_from_pythons_library() -> None:
    calibrated = {
        line.strip()
        for held_out in (False, True)
        for document in documents(held_out=held_out)
        for line in document.text.splitlines()
    }
    for text in BUNDLED_TEXTS:
        lines = {line.strip() for line in text.path.read_text("utf-8").splitlines()}
        assert not {line for line in lines if len(line) > 40} & calibrated
