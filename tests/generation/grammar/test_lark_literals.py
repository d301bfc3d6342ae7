"""Grammars in Lark's language under engine llguidance: lazy repetitions, many alternatives, a BOM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import GrammarError
from pyquant.generation.grammar.engines import compile_for
from pyquant.generation.grammar.grammar import GRAMMARS, Grammar, Language, read_grammar
from pyquant.generation.grammar.lark_literals import check_classes, check_lazy
from pyquant.llama.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('start: S "," S\nS: /".*?"/', "line 2: S: "),
        ("start: /a+?/", "line 1: start: "),
        ("start: A\nA.2: /x/\n | /[a]{2,3}?b/", "line 3: A: "),
        ('start: "/*?/" /b??/ // c', "line 1: start: "),
    ],
)
def test_lazy_repetitions_are_refused(text: str, place: str, vocabulary: Vocabulary) -> None:
    """llguidance reads them as others: `S "," S` with `S: /".*?"/` came to its end with no text."""
    with pytest.raises(GrammarError, match=rf"^g: {place}/.*/ has a lazy repetition.* or give --engine lr$"):
        compile_for(vocabulary, Grammar(Language.LARK, text, "g"))


@pytest.mark.parametrize(
    "text", ['start: "a*?"', r"start: /a\+?/", "start: /[*?]+/", "start: /a?b*/ // x*?", "start: /(a*)?/"]
)
def test_what_looks_like_one_is_taken(text: str) -> None:
    check_lazy(Grammar(Language.LARK, text, "g"))


def test_the_bundled_grammars_have_none() -> None:
    for path in GRAMMARS.glob("*.lark"):
        check_lazy(read_grammar(path))
        check_classes(read_grammar(path))


@pytest.mark.parametrize(
    ("regex", "escaped"),
    [
        ("[[a]b]", r"\["), ("[a&&b]", r"\&\&"), ("x[a-c--b]", r"\-\-"), ("[^~~]", r"\~\~"),
        ("[[:alpha:]]", r"\["),
    ],
)  # fmt: skip
def test_classes_in_classes_are_refused(regex: str, escaped: str, vocabulary: Vocabulary) -> None:
    """In Lark `[a&&b]` is one of a, & and b; in Rust's regular expressions it is nothing."""
    grammar = Grammar(Language.LARK, f"start: A\nA: /{regex}/", "g")
    with pytest.raises(GrammarError) as refused:
        compile_for(vocabulary, grammar)
    assert f"g: line 2: A: /{regex}/ has " in str(refused.value)
    assert f"write {escaped}, or give --engine lr" in str(refused.value)


@pytest.mark.parametrize("regex", [r"[\[a]", r"\[\[", "[a&b]", r"[\-\-]", "a&&b--", r"[\\]~~", "[]a]"])
def test_classes_of_plain_signs_are_taken(regex: str) -> None:
    check_classes(Grammar(Language.LARK, f"start: /{regex}/", "g"))


def test_a_backslash_at_the_end_of_an_expression_is_refused(vocabulary: Vocabulary) -> None:
    """llguidance drops it."""
    with pytest.raises(GrammarError, match=r"^--regex: \\ at the end; write"):
        compile_for(vocabulary, Grammar(Language.REGEX, "ab\\", "--regex"))
    compile_for(vocabulary, Grammar(Language.REGEX, "ab\\\\", "--regex"))


def test_a_lazy_repetition_of_all_of_a_text_is_as_good_as_another(vocabulary: Vocabulary) -> None:
    state = compile_for(vocabulary, Grammar(Language.REGEX, '".*?"', "--regex")).start()
    for token in vocabulary.tokenize(b'"a"', ends=False).tolist():
        state.advance(token)
    assert state.may_end


def test_thousands_of_alternatives(vocabulary: Vocabulary) -> None:
    """llguidance's default stops at 2,000 items in a row, with advice that does not help."""
    text = "start: " + " | ".join(f'"x" "q{i}" "z"' for i in range(5000))
    state = compile_for(vocabulary, Grammar(Language.LARK, text, "g")).start()
    for token in vocabulary.tokenize(b"xq4999z", ends=False).tolist():
        state.mask(np.empty(-(-vocabulary.n_tokens // 32), np.int32))
        state.advance(token)
    assert state.may_end


@pytest.mark.parametrize("suffix", ["lark", "gbnf", "json"])
def test_a_byte_order_mark_is_skipped(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"g.{suffix}"
    path.write_text("{}", encoding="utf-8-sig")
    assert read_grammar(path).text == "{}"
