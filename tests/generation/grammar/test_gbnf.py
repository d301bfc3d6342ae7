"""GBNF is what llama.cpp takes: its sample grammars, generated ones, and cases of public reports."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import GrammarError
from pyquant.generation.grammar.engine import State, allowed_tokens
from pyquant.generation.grammar.engines import compile_for, default_engine
from pyquant.generation.grammar.grammar import GRAMMARS, Grammar, Language, read_grammar
from pyquant.generation.grammar.logits_processor import GrammarProcessor
from pyquant.llama.vocabulary import Vocabulary
from tests.support.grammars import mask_of
from tests.support.vendored import llama_files

SAMPLES = llama_files("grammars/*.gbnf")
NAMES = ["arithmetic", "c", "chess", "english", "japanese", "json", "json_arr", "list"]


def compiled(text: str, vocabulary: Vocabulary) -> State:
    return compile_for(vocabulary, Grammar(Language.GBNF, text, "g.gbnf")).start()


def takes(state: State, vocabulary: Vocabulary, text: str) -> bool:
    """Whether a text is one of the grammar, cut by the vocabulary."""
    state = state.copy()
    for token in vocabulary.tokenize(text.encode(), ends=False).tolist():
        if not state.allows(token):
            return False
        state.advance(token)
    return state.may_end


class Judge:
    """llama.cpp's sampler for a grammar, given a text byte by byte."""

    def __init__(self, vocabulary: Vocabulary, text: str) -> None:
        self._llama, self._vocabulary, self._text = vocabulary.llama, vocabulary, text
        pieces = vocabulary.pieces()
        self._bytes = {piece: token for token, piece in reversed(list(enumerate(pieces))) if len(piece) == 1}

    def takes_beginning(self, text: bytes) -> bool:
        state = compiled(self._text, self._vocabulary)
        for byte in text:
            token = self._bytes[bytes([byte])]
            if not state.allows(token):
                return False
            state.advance(token)
        return True


def walk(vocabulary: Vocabulary, text: str, rng: np.random.Generator, n_tokens: int, n_asked: int) -> None:
    """Follow tokens at random; the judge says of some whether they may come, by the bytes that they have."""
    state, judge, written = compiled(text, vocabulary), Judge(vocabulary, text), b""
    pieces, ends = vocabulary.pieces(), set(vocabulary.end_tokens().tolist())
    for _ in range(n_tokens):
        words = np.empty(-(-vocabulary.n_tokens // 32), np.int32)
        state.mask(words)
        allowed = allowed_tokens(words, vocabulary.n_tokens)
        assert allowed[list(ends)].all() == state.may_end
        asked = rng.choice(vocabulary.n_tokens, n_asked).tolist()
        asked += rng.choice(np.flatnonzero(allowed), min(n_asked, int(allowed.sum()))).tolist()
        for token in set(asked) - ends:
            expected = bool(pieces[token]) and judge.takes_beginning(written + pieces[token])
            assert allowed[token] == expected, (written, pieces[token])
        going_on = [token for token in np.flatnonzero(allowed).tolist() if token not in ends]
        assert state.must_end == (not going_on)
        if not going_on:
            return
        token = int(rng.choice(going_on))
        state.advance(token)
        written += pieces[token]


def test_the_samples_are_there() -> None:
    if not SAMPLES:
        pytest.skip("skipped: no source of llama.cpp in build/vendor")
    assert [path.stem for path in SAMPLES] == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_walks_through_the_samples(name: str, seed: int, vocabulary: Vocabulary) -> None:
    path = next((path for path in SAMPLES if path.stem == name), None)
    if path is None:
        pytest.skip("skipped: no source of llama.cpp in build/vendor")
    walk(vocabulary, read_grammar(path).text, np.random.default_rng(seed), n_tokens=24, n_asked=12)


@pytest.mark.parametrize("name", ["arithmetic", "list"])
def test_a_walk_through_a_sample(name: str, vocabulary: Vocabulary) -> None:
    path = next((path for path in SAMPLES if path.stem == name), None)
    if path is None:
        pytest.skip("skipped: no source of llama.cpp in build/vendor")
    walk(vocabulary, read_grammar(path).text, np.random.default_rng(9), n_tokens=6, n_asked=4)


def test_arithmetic_ends_where_llama_cpp_ends_it(vocabulary: Vocabulary) -> None:
    """llguidance issue 57: its converter let texts of this grammar end at none of 800 places."""
    path = next((path for path in SAMPLES if path.stem == "arithmetic"), None)
    if path is None:
        pytest.skip("skipped: no source of llama.cpp in build/vendor")
    state = compile_for(vocabulary, read_grammar(path)).start()
    assert takes(state, vocabulary, "a=1\n")
    assert takes(state, vocabulary, "(a+12)*3=foo\nb=2\n")
    assert not takes(state, vocabulary, "a=1")


@pytest.mark.parametrize(
    ("grammar", "texts", "others"),
    [
        ('root ::= name "z"\nname ::= [a-z]*', ["az", "z", "zz", "azz"], ["a", ""]),
        ("root ::= n n\nn ::= [a-z]+", ["ab", "abc"], ["a"]),
        ('root ::= ("a" | "ab") "bc"', ["abc", "abbc"], ["ab"]),
        ('root ::= word "s" "."\nword ::= [a-z]+', ["as.", "ss."], ["s.", "a."]),
        ('root ::= ws "{" any "}" ws\nany ::= .*\nws ::= [ \\n]*', ["{}", " {}} \n", "{a}"], ["{"]),
        ('root ::= start\nstart ::= "a"', ["a"], [""]),
        ('root ::= foo Foo\nfoo ::= "a"\nFoo ::= "b"', ["ab"], ["aa"]),
        ('root ::= foo-bar fooBar\nfoo-bar ::= "a"\nfooBar ::= "b"', ["ab"], ["aa"]),
        ('root ::= 1st\n1st ::= "a"', ["a"], [""]),
        ('root ::= "a"{0} "b"', ["b"], ["ab"]),
        ('root ::= ("a"*)* "b"', ["b", "aab"], ["a"]),
        ('root ::= ("a"?)+ "b"', ["b", "ab"], ["a"]),
        ('root ::= ("a"+)? "b"', ["b", "aab"], ["a"]),
        ('root ::= ("a"{2})* "b"', ["b", "aab"], ["ab"]),
        ('root ::= "\\-" "\\["', ["-["], ["\\-"]),
        ('root ::= "a\nb"', ["a\nb"], ["ab"]),
        ('root ::= [] "b" | "c"', ["b", "c"], ["bb"]),
    ],
)
def test_what_llama_cpp_takes(
    grammar: str, texts: list[str], others: list[str], vocabulary: Vocabulary
) -> None:
    """llguidance issue 57 and its kind: what its converter refused or changed."""
    state = compiled(grammar + "\n", vocabulary)
    assert [text for text in texts if not takes(state, vocabulary, text)] == []
    assert [text for text in others if takes(state, vocabulary, text)] == []


def generated(rng: np.random.Generator) -> tuple[str, str]:
    """Give a grammar at random, and the regular expression that it stands for: its rules do not recur."""
    rules: list[tuple[str, str]] = []

    def element(depth: int) -> tuple[str, str]:
        choice = rng.integers(0, 7 if depth else 3)
        if choice == 0:
            literal = "".join(rng.choice(list("abc- "), rng.integers(1, 3)))
            return f'"{literal}"', re.escape(literal)
        if choice == 1:
            chosen = "".join(sorted(set(rng.choice(list("abc"), 2))))
            negated = "^" if rng.integers(0, 4) == 0 else ""
            return f"[{negated}{chosen}]", f"[{negated}{chosen}]"
        if choice == 2:
            return ".", "(?s:.)"
        inner, pattern = sequence(depth - 1)
        if choice in (3, 4):
            name = f"r{len(rules)}-{'xyz'[len(rules) % 3]}"
            rules.append((name, inner))
            return name, f"(?:{pattern})"
        repeated = str(rng.choice(["*", "+", "?", "{2}", "{0,2}", "{1,}"]))
        return f"({inner}){repeated}", f"(?:{pattern}){repeated}"

    def sequence(depth: int) -> tuple[str, str]:
        ways = []
        for _ in range(rng.integers(1, 3)):
            parts = [element(depth) for _ in range(rng.integers(1, 3))]
            ways.append((" ".join(part for part, _ in parts), "".join(pattern for _, pattern in parts)))
        return " | ".join(way for way, _ in ways), "|".join(pattern for _, pattern in ways)

    root, pattern = sequence(2)
    lines = [f"root ::= {root}", *(f"{name} ::= {inner}" for name, inner in rules)]
    return "\n".join(lines) + "\n", pattern


def check_generated(seed: int, vocabulary: Vocabulary) -> None:
    rng = np.random.default_rng([57, seed])
    grammar, pattern = generated(rng)
    state = compiled(grammar, vocabulary)
    for _ in range(40):
        text = "".join(rng.choice(list("abc- d\né"), rng.integers(0, 7)))
        expected = re.fullmatch(pattern, text) is not None
        assert takes(state, vocabulary, text) == expected, (grammar, pattern, text)


@pytest.mark.parametrize("seed", range(8))
def test_generated_grammars(seed: int, vocabulary: Vocabulary) -> None:
    check_generated(seed, vocabulary)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 128))
def test_more_generated_grammars(seed: int, vocabulary: Vocabulary) -> None:
    check_generated(seed, vocabulary)
    grammar, _ = generated(np.random.default_rng([57, seed]))
    walk(vocabulary, grammar, np.random.default_rng(seed), n_tokens=6, n_asked=6)


def test_the_engine_of_gbnf_is_llama_cpps() -> None:
    assert default_engine(Grammar(Language.GBNF, "")) == "gbnf"
    assert {default_engine(Grammar(language, "")) for language in Language} == {"gbnf", "llguidance"}
    assert GrammarProcessor.__init__.__kwdefaults__ == {"engine": None}


@pytest.mark.parametrize("name", sorted(file.stem for file in GRAMMARS.glob("*.lark")))
def test_bundled_grammars_need_no_engine(name: str, vocabulary: Vocabulary) -> None:
    compile_for(vocabulary, read_grammar(Path(name)))


def test_what_c_would_not_read_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError, match=r"^g\.gbnf: line 2: a NUL byte"):
        compiled('root ::= "a"\n\0 "b"', vocabulary)


def test_a_place_knows_its_mask_and_whether_it_is_the_end(vocabulary: Vocabulary) -> None:
    state = compiled('root ::= "a"* "b"', vocabulary)
    a, b = (vocabulary.tokenize(letter, ends=False).tolist()[-1] for letter in (b"a", b"b"))
    for token in (a, a, b):
        assert not state.must_end
        before = mask_of(state, vocabulary.n_tokens)
        np.testing.assert_array_equal(mask_of(state, vocabulary.n_tokens), before)  # as it is kept
        assert not state.must_end
        state.advance(token)
    assert state.must_end
    assert mask_of(state, vocabulary.n_tokens).sum() == len(vocabulary.end_tokens())
    assert state.must_end
    state.roll_back(1)
    assert not state.must_end
