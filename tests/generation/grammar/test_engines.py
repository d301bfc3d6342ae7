"""Engines: masks are what single tokens say, states go forth and back, refusals say where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import ConfigError, GrammarError
from pyquant.generation.grammar.engine import Compiled, State
from pyquant.generation.grammar.engines import ENGINES, compile_grammar, make_engine
from pyquant.generation.grammar.grammar import GRAMMARS, Grammar, Language, read_grammar
from pyquant.llama.vocabulary import Vocabulary
from tests.support.grammars import mask_of
from tests.support.vocabularies import vocabulary as vocabulary_of

ARITHMETIC = Grammar(
    Language.GBNF,
    """
root ::= expression ("==" expression)*
expression ::= term ([-+] term)*
term ::= [0-9]+ | "(" expression ")"
""",
    "arithmetic.gbnf",
)
ARITHMETIC_IN_LARK = Grammar(
    Language.LARK,
    """
start: expression ("==" expression)*
expression: term (/[-+]/ term)*
term: /[0-9]+/ | "(" expression ")"
""",
    "arithmetic.lark",
)


def compile_arithmetic(engine: str, vocabulary: Vocabulary) -> Compiled:
    return make_engine(engine, vocabulary).compile(ARITHMETIC if engine == "gbnf" else ARITHMETIC_IN_LARK)


@pytest.fixture(scope="module", params=ENGINES)
def arithmetic(request: pytest.FixtureRequest, vocabulary: Vocabulary) -> Compiled:
    return compile_arithmetic(request.param, vocabulary)


def after(compiled: Compiled, vocabulary: Vocabulary, text: str) -> State:
    state = compiled.start()
    for token in vocabulary.tokenize(text.encode(), ends=False).tolist():
        state.advance(token)
    return state


@pytest.mark.parametrize("text", ["", "12", "(3+", "(3+4)", "1==2"])
def test_a_mask_is_what_single_tokens_say(arithmetic: Compiled, vocabulary: Vocabulary, text: str) -> None:
    state = after(arithmetic, vocabulary, text)
    mask = mask_of(state, vocabulary.n_tokens)
    assert mask.tolist() == [state.allows(token) for token in range(vocabulary.n_tokens)]
    assert 0 < mask.sum() < vocabulary.n_tokens / 2


@pytest.mark.parametrize(("text", "may_end"), [("", False), ("12", True), ("(3+", False), ("(3+4)", True)])
def test_texts_may_end_where_they_are_whole(
    arithmetic: Compiled, vocabulary: Vocabulary, text: str, may_end: bool
) -> None:
    state = after(arithmetic, vocabulary, text)
    ends = vocabulary.end_tokens()
    assert state.may_end == may_end
    assert mask_of(state, vocabulary.n_tokens)[ends].all() == may_end


def test_engines_agree(vocabulary: Vocabulary) -> None:
    engines = [compile_arithmetic(name, vocabulary) for name in ENGINES]
    for text in ("", "1", "1-(", "1==(2+3"):
        first, *others = (mask_of(after(one, vocabulary, text), vocabulary.n_tokens) for one in engines)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_states_go_back_and_are_copied(arithmetic: Compiled, vocabulary: Vocabulary) -> None:
    state = after(arithmetic, vocabulary, "(1")
    before = mask_of(state, vocabulary.n_tokens)
    copy = state.copy()
    tokens = vocabulary.tokenize(b"+2)-3", ends=False).tolist()
    for token in tokens:
        state.advance(token)
    assert (mask_of(state, vocabulary.n_tokens) != before).any()
    np.testing.assert_array_equal(mask_of(copy, vocabulary.n_tokens), before)
    state.roll_back(len(tokens))
    np.testing.assert_array_equal(mask_of(state, vocabulary.n_tokens), before)


def test_a_token_that_may_not_come_is_refused(arithmetic: Compiled, vocabulary: Vocabulary) -> None:
    state = after(arithmetic, vocabulary, "1")
    with pytest.raises(GrammarError):
        state.advance(int(vocabulary.tokenize(b"x", ends=False)[0]))


@pytest.mark.parametrize(
    ("name", "text"),
    [("json", '{"a": [1, -2.5e3, "b\\\\n\\u00e9é"], "c": {}}'), ("arithmetic", "-(12 +3)*4 == 9")],
)
def test_lr_and_llguidance_agree_along_texts(name: str, text: str, vocabulary: Vocabulary) -> None:
    grammar = read_grammar(GRAMMARS / f"{name}.lark")
    ours, theirs = (
        make_engine(engine, vocabulary).compile(grammar).start() for engine in ("lr", "llguidance")
    )
    for token in vocabulary.tokenize(text.encode(), ends=False).tolist():
        np.testing.assert_array_equal(
            mask_of(ours, vocabulary.n_tokens), mask_of(theirs, vocabulary.n_tokens), text
        )
        ours.advance(token)
        theirs.advance(token)
    assert ours.may_end
    assert theirs.may_end


def test_lr_finds_the_end(vocabulary: Vocabulary) -> None:
    compiled = make_engine("lr", vocabulary).compile(Grammar(Language.LARK, 'start: "yx9" | "no"'))
    state = after(compiled, vocabulary, "y")
    assert not state.must_end
    for token in vocabulary.tokenize(b"x9", ends=False).tolist():
        state.advance(token)
    assert state.must_end
    state.advance(int(vocabulary.end_tokens()[0]))
    assert state.must_end
    assert not mask_of(state, vocabulary.n_tokens).any()


def test_llguidance_takes_all_languages(vocabulary: Vocabulary) -> None:
    engine = make_engine("llguidance", vocabulary)
    lark = engine.compile(Grammar(Language.LARK, 'start: "a" B\nB: /b+/\n%ignore / /'))
    assert after(lark, vocabulary, "a b").may_end
    schema = engine.compile(
        Grammar(Language.JSON_SCHEMA, '{"type": "object", "properties": {"n": {"const": 1}}}')
    )
    assert after(schema, vocabulary, '{"n": 1}').must_end
    regex = engine.compile(Grammar(Language.REGEX, "yes|no"))
    assert after(regex, vocabulary, "yes").must_end


@pytest.mark.parametrize(
    ("engine", "grammar", "message"),
    [
        (
            "llguidance",
            Grammar(Language.LARK, "start: A\nA: /[/", "g.lark"),
            r"g\.lark: line 2, column 4: invalid regex",
        ),
        (
            "llguidance",
            ARITHMETIC,
            r"arithmetic\.gbnf: engine llguidance does not take GBNF; give --engine gbnf",
        ),
        (
            "llguidance",
            Grammar(Language.JSON_SCHEMA, '{"type": "no"}', "g.json"),
            r"g\.json: Invalid type: no",
        ),
        (
            "llguidance",
            Grammar(Language.JSON_SCHEMA, '{"a": \n1 2}', "g.json"),
            r"g\.json: line 2, column 3: is no JSON: ",
        ),
        ("llguidance", Grammar(Language.REGEX, "a(", "--regex"), r"--regex: column 2: unclosed group"),
        (
            "gbnf",
            Grammar(Language.GBNF, "root ::= (\n", "g.gbnf"),
            r"g\.gbnf: line 2, column 1: error .*: expecting '\)' at$",
        ),
        ("gbnf", Grammar(Language.GBNF, " \n", "g.gbnf"), r"g\.gbnf: is empty"),
        ("gbnf", Grammar(Language.GBNF, 'root ::= root "a" | "a"', "g.gbnf"), r"g\.gbnf: .*left recursion"),
        ("gbnf", Grammar(Language.LARK, "start: A", "g.lark"), "takes GBNF alone, not lark"),
        ("lr", Grammar(Language.REGEX, "a", "--regex"), "takes Lark alone, not regex"),
    ],
)
def test_grammars_that_do_not_compile_say_why(
    engine: str,
    grammar: Grammar,
    message: str,
    vocabulary: Vocabulary,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(GrammarError, match=f"(?s){message}"):
        make_engine(engine, vocabulary).compile(grammar)
    assert capfd.readouterr() == ("", "")  # nothing by llama.cpp, which prints the whole grammar


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('root ::= "a"\nroot2 := "b"\nc ::= "d"', "line 2, column 7: .*expecting ::= at := "),
        ('root ::= "a" )\nb ::= "c" )\n', "line 1, column 14: .*expecting newline or end at "),
        # Both lines end alike, and only the second is wrong.
        ('root ::= ("a"\n  )\n  )\n', r"line 3, column 3: .*expecting name at \)"),
        ('root ::= (\n"a"\n\nb ::= "c"\n', r"line 4, column 3: .*expecting '\)' at ::= "),
        ('root ::= "é☃" )\n', "line 1, column 15: "),
        ('root\n::= "a"', "line 1, column 5: .*expecting ::= at$"),
        ('root ::= "a\nb ::= "c"\n', "line 2, column 9: |line 3, column 1: "),
        ('root ::= "a" [b\n', "line 2, column 1: .*unexpected end of input"),
        ('root ::= "c" # c\nb ::= [c] c-d c', "line 2, column 11: .*Undefined rule identifier 'c-d'"),
        ('root ::= "c" # c\nb ::= ([c]\n  c)', "line 3, column 3: .*Undefined rule identifier 'c'"),
    ],
)
def test_gbnf_says_line_and_column(text: str, place: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError, match=rf"^g\.gbnf: {place}"):
        make_engine("gbnf", vocabulary).compile(Grammar(Language.GBNF, text, "g.gbnf"))


NOTHING = r"[^\x00-\U0010ffff]"


@pytest.mark.parametrize("text", [f'start: A B\nA: "x"\nB: /{NOTHING}/', "B: /b/ & /c/\nstart: /x/ B"])
def test_llguidance_names_the_terminal_of_nothing(text: str, vocabulary: Vocabulary) -> None:
    compiled = make_engine("llguidance", vocabulary).compile(Grammar(Language.LARK, text, "g.lark"))
    state = after(compiled, vocabulary, "x")
    with pytest.raises(GrammarError, match=r"^g\.lark: terminal B matches nothing that this vocabulary"):
        state.mask(np.empty(compiled.n_words, np.int32))


def test_what_has_no_name_is_a_dead_end(vocabulary: Vocabulary) -> None:
    compiled = make_engine("llguidance", vocabulary).compile(
        Grammar(Language.LARK, f'start: "x" /{NOTHING}/')
    )
    state = after(compiled, vocabulary, "x")
    words = np.full(compiled.n_words, -1, np.int32)
    state.mask(words)
    assert not words.any()


@pytest.mark.parametrize(
    ("engine", "grammar"),
    [
        ("llguidance", Grammar(Language.REGEX, NOTHING, "g")),
        ("lr", Grammar(Language.LARK, 'start: "☃" "x"', "g")),
        ("gbnf", Grammar(Language.GBNF, 'root ::= "☃" "x"', "g")),
    ],
)
def test_what_cannot_begin_is_refused_before_a_text_is_written(
    engine: str, grammar: Grammar, vocabulary: Vocabulary
) -> None:
    """BERT's vocabulary has no token of a snowman, and none of single bytes."""
    if grammar.language is Language.REGEX:
        with pytest.raises(GrammarError, match=r"^g: no text can begin"):
            compile_grammar(make_engine(engine, vocabulary), grammar)
        return
    compile_grammar(make_engine(engine, vocabulary), grammar)
    with (
        vocabulary_of("bert-bge") as without,
        pytest.raises(GrammarError, match=r"^g: no text can begin: .* the model's vocabulary has no token"),
    ):
        compile_grammar(make_engine(engine, without), grammar)


def test_files_say_their_language_by_their_suffix(tmp_path: Path) -> None:
    for suffix, language in [
        (".lark", Language.LARK),
        (".gbnf", Language.GBNF),
        (".json", Language.JSON_SCHEMA),
    ]:
        path = tmp_path / f"grammar{suffix}"
        path.write_text("text")
        assert read_grammar(path) == Grammar(language, "text", str(path))
    with pytest.raises(GrammarError, match=r"ends in \.lark, \.gbnf, \.json; bundled are .*c, json"):
        read_grammar(tmp_path / "grammar.txt")
    with pytest.raises(GrammarError, match=r"missing\.lark: No such file or directory$"):
        read_grammar(tmp_path / "missing.lark")
    (tmp_path / "latin.lark").write_bytes(b"start: \xff")
    with pytest.raises(GrammarError, match=r"latin\.lark: cannot be read: it is not UTF-8 from byte 7 on$"):
        read_grammar(tmp_path / "latin.lark")


def test_grammars_in_the_box_have_names() -> None:
    grammar = read_grammar(Path("json"))
    assert grammar == read_grammar(GRAMMARS / "json.lark")
    assert grammar.language is Language.LARK


def test_there_is_no_other_engine(vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError, match="one of llguidance, lr, gbnf"):
        make_engine("other", vocabulary)
