"""The cache of engine lr: what is kept is used, and what is damaged is prepared anew, with a remark."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest

from pyquant import _core
from pyquant.generation.grammar import lr_engine
from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar
from pyquant.generation.grammar.lr import cache
from pyquant.generation.grammar.lr_engine import Lr, LrGrammar
from pyquant.llama.vocabulary import Vocabulary
from pyquant.machine.caches import cache_folder

GRAMMAR = Grammar(Language.LARK, 'start: ("a" | "b" | "é")+\n%ignore " "', "g.lark")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "kept" / "here"))
    return tmp_path / "kept" / "here"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the grammars that are prepared from now on."""
    names = []
    make = lr_engine.make_tables

    def noted(grammar: Grammar) -> object:
        names.append(grammar.name)
        return make(grammar)

    monkeypatch.setattr(lr_engine, "make_tables", noted)
    return names


def masks(compiled: LrGrammar, vocabulary: Vocabulary) -> list[bytes]:
    state, result = compiled.start(), []
    words = np.empty(compiled.n_words, np.int32)
    for token in vocabulary.tokenize("a éb".encode(), ends=False).tolist():
        state.mask(words)
        result.append(words.tobytes())
        state.advance(token)
    return result


def test_what_is_kept_is_used_and_gives_the_same_masks(
    vocabulary: Vocabulary, folder: Path, prepared: list[str]
) -> None:
    first = Lr(vocabulary).compile(GRAMMAR)
    second = Lr(vocabulary).compile(GRAMMAR)
    assert prepared == ["g.lark"]
    assert len(list(folder.iterdir())) == 1
    assert masks(first, vocabulary) == masks(second, vocabulary)
    assert len(set(masks(first, vocabulary))) > 1


def test_another_text_or_vocabulary_is_prepared(
    vocabulary: Vocabulary, folder: Path, prepared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Lr(vocabulary).compile(GRAMMAR)
    Lr(vocabulary).compile(Grammar(Language.LARK, GRAMMAR.text + " ", "g.lark"))
    pieces = (*vocabulary.pieces()[:-1], b"aaaa")
    monkeypatch.setattr(vocabulary, "pieces", lambda: pieces)
    Lr(vocabulary).compile(GRAMMAR)
    assert len(prepared) == 3
    assert len(list(folder.iterdir())) == 3


def test_pieces_that_are_cut_otherwise_are_another_vocabulary() -> None:
    assert cache.hash_vocabulary([b"ab", b"c"], [0]) != cache.hash_vocabulary([b"a", b"bc"], [0])
    assert cache.hash_vocabulary([b"ab", b"c"], [0]) != cache.hash_vocabulary([b"ab", b"c"], [1])
    assert _core.join_pieces([b"ab", b"", b"c"]) == np.array([2, 0, 1], np.int32).tobytes() + b"abc"
    assert _core.join_pieces([]) == b""
    with pytest.raises(TypeError, match="pieces"):
        _core.join_pieces([b"a", "b"])  # type: ignore[list-item]


def test_a_changed_import_is_seen(
    vocabulary: Vocabulary, folder: Path, prepared: list[str], tmp_path: Path
) -> None:
    (tmp_path / "words.lark").write_text('WORD: "a"')
    (tmp_path / "g.lark").write_text("%import .words.WORD\n%import common.INT\nstart: WORD INT")
    grammar = read_grammar(tmp_path / "g.lark")
    before = Lr(vocabulary).compile(grammar).start()
    Lr(vocabulary).compile(grammar)
    assert len(prepared) == 1
    (tmp_path / "words.lark").write_text('WORD: "b"')
    after = Lr(vocabulary).compile(grammar).start()
    assert len(prepared) == 2
    assert (before.kernel.forced(), after.kernel.forced()) == (b"a", b"b")


def damage(path: Path, what: str) -> None:
    data = bytearray(path.read_bytes())
    if what == "a bit":
        data[len(data) // 2] ^= 1
    elif what == "the names":
        data[len(cache.BEGIN) + 20] ^= 1
    elif what == "the last byte":
        data[-1] ^= 1
    elif what == "more":
        data += b"\0"
    elif what == "the checksum":
        data[len(cache.BEGIN)] ^= 1
    elif what == "another version":
        data[: len(cache.BEGIN)] = b"pyquant grammar 1\n"
    else:
        del data[{"cut": len(data) // 2, "cut short": 20, "empty": 0}[what] :]
    path.write_bytes(data)


DAMAGES = ["a bit", "the names", "the last byte", "more", "the checksum", "another version"]


@pytest.mark.parametrize("what", [*DAMAGES, "cut", "cut short", "empty"])
def test_a_damaged_file_is_prepared_anew_with_a_remark(
    what: str,
    vocabulary: Vocabulary,
    folder: Path,
    prepared: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = Lr(vocabulary).compile(GRAMMAR)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    damage(path, what)
    with caplog.at_level(logging.WARNING, "pyquant.generation.grammar"):
        second = Lr(vocabulary).compile(GRAMMAR)
    assert len(prepared) == 2
    assert "g.lark: prepared anew, as what was kept cannot be used" in caplog.text
    assert masks(first, vocabulary) == masks(second, vocabulary)
    assert path.read_bytes()[: len(cache.BEGIN)] == whole[: len(cache.BEGIN)]
    Lr(vocabulary).compile(GRAMMAR)
    assert len(prepared) == 2


def test_where_nothing_can_be_kept_work_goes_on(
    vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "pyquant.generation.grammar"):
        assert Lr(vocabulary).compile(GRAMMAR).start().allows(int(vocabulary.tokenize(b"a", ends=False)[-1]))
    assert "g.lark: what was prepared is not kept" in caplog.text


def test_where_caches_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYQUANT_CACHE", "/some/place")
    assert cache_folder() == Path("/some/place")
    monkeypatch.setenv("PYQUANT_CACHE", "")
    assert cache_folder() is None
    monkeypatch.delenv("PYQUANT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/pyquant")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/somebody/.cache/pyquant")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/somebody/.cache/pyquant")


def test_an_empty_variable_keeps_nothing(
    vocabulary: Vocabulary, prepared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYQUANT_CACHE", "")
    for _ in range(2):
        Lr(vocabulary).compile(GRAMMAR)
    assert len(prepared) == 2


def test_those_not_used_for_the_longest_time_go(
    vocabulary: Vocabulary, folder: Path, prepared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_FILES", 2)
    grammars = [Grammar(Language.LARK, f'start: "{word}"', word) for word in ("a", "b", "c")]
    for age, grammar in zip((300, 200), grammars):
        before = set(folder.glob("*"))
        Lr(vocabulary).compile(grammar)
        (path,) = set(folder.glob("*")) - before
        os.utime(path, times=(time.time() - age,) * 2)
    for grammar in (grammars[0], grammars[2], grammars[0], grammars[1]):  # the second one has gone
        Lr(vocabulary).compile(grammar)
    assert prepared == ["a", "b", "c", "b"]
    assert len(list(folder.iterdir())) == 2
