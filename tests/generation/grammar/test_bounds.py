"""Grammars that end a process, or hang it, are refused before an engine sees them; up to there they work."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import GrammarError
from pyquant.generation.grammar.bounds import DEEPEST, MOST_RULES, check_bounds
from pyquant.generation.grammar.engines import default_engine, make_engine
from pyquant.generation.grammar.grammar import GRAMMARS, Grammar, Language, read_grammar
from pyquant.generation.grammar.lr import lark_tables
from pyquant.generation.grammar.schema.schema import LEAST, MOST
from pyquant.llama.vocabulary import Vocabulary
from tests.support.command import ENVIRONMENT, run


def rules(language: Language, n: int) -> Grammar:
    """n rules, each of which names the next."""
    first, means = ("root", "::=") if language is Language.GBNF else ("start", ":")
    names = [first, *(f"a{i}" for i in range(n - 1))]
    lines = [f"{name} {means} {following}" for name, following in zip(names, [*names[1:], '"x"'])]
    return Grammar(language, "\n".join(lines) + "\n", "g")


def parentheses(n: int) -> Grammar:
    return Grammar(Language.GBNF, f'root ::= {"(" * n}"x"{")" * n}\n', "g")


def references(n: int) -> Grammar:
    """A schema of n references, each to what has the next; those that end it stand first."""
    named = {f"a{i}": {"items": {"$ref": f"#/$defs/a{i + 1}"}} for i in reversed(range(n))}
    return Grammar(
        Language.JSON_SCHEMA, json.dumps({"$ref": "#/$defs/a0", "$defs": {f"a{n}": {}, **named}}), "g"
    )


@pytest.mark.ci
@pytest.mark.parametrize(
    ("engine", "grammar"),
    [
        ("llguidance", rules(Language.LARK, MOST_RULES)),
        ("llguidance", references(DEEPEST // 3)),
        ("gbnf", rules(Language.GBNF, MOST_RULES)),
        ("gbnf", parentheses(DEEPEST)),
        ("lr", rules(Language.LARK, MOST_RULES)),
    ],
)
def test_near_the_bounds_engines_work(engine: str, grammar: Grammar, vocabulary: Vocabulary) -> None:
    begin = time.process_time()
    state = make_engine(engine, vocabulary).compile(grammar).start()
    assert not state.must_end
    assert time.process_time() - begin < 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_chains_of_rules_do_not_depend_on_the_order_of_sets(seed: int, tmp_path: Path) -> None:
    """lark calls itself along a chain, in an order that the seed of Python's hashes decides."""
    (tmp_path / "chain.lark").write_text(rules(Language.LARK, MOST_RULES).text)
    ran = run(
        "generate", data.model_path(), "--prompt", "x", "--max-tokens", "2", "--engine", "lr",
        "--grammar", tmp_path / "chain.lark",
        environment={**ENVIRONMENT, "PYTHONHASHSEED": str(2 * seed + 1), "PYQUANT_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "x\n"), ran.stderr


def test_deeper_recursion_than_python_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def deep(*of_parser: object) -> None:
        limits.append(sys.getrecursionlimit())
        deep()

    before = sys.getrecursionlimit()
    monkeypatch.setattr(lark_tables, "_parser", deep)
    with pytest.raises(GrammarError, match=r"^g: its rules name one another too deeply for engine lr"):
        lark_tables.make_tables(rules(Language.LARK, 2))
    assert set(limits) == {lark_tables.CALLS_A_RULE * MOST_RULES}
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("engine", ["llguidance", "gbnf", "lr"])
@pytest.mark.parametrize("n", [MOST_RULES + 1, 100_000])
def test_more_rules_are_refused(engine: str, n: int, vocabulary: Vocabulary) -> None:
    grammar = rules(Language.GBNF if engine == "gbnf" else Language.LARK, n)
    with pytest.raises(GrammarError, match=f"^g: of {n:,} rules; engines take up to 1,000"):
        make_engine(engine, vocabulary).compile(grammar)


def chain(n: int, place: str, link: str) -> Grammar:
    """A schema of n references, by links to places of a list or by names."""
    links = [{"items": {"$ref": link.format(i + 1)}} for i in range(n)]
    parts = {f"a{i}": part for i, part in enumerate(links)} if place == "$defs" else [*links, {}]
    return Grammar(Language.JSON_SCHEMA, json.dumps({"$ref": link.format(0), place: parts}), "g")


@pytest.mark.parametrize(
    ("place", "link"),
    [
        ("anyOf", "#/anyOf/{}"),
        ("$defs", "#/%24defs/a{}"),
        ("$defs", "http://x/s#/$defs/a{}"),
        ("$defs", "#anchor{}"),
        ("$defs", "other{}.json"),
    ],
)
def test_references_of_every_form_count(place: str, link: str) -> None:
    with pytest.raises(GrammarError, match=r"^g: is nested too deeply: more than 500 levels"):
        check_bounds(chain(DEEPEST + 1, place, link))


@pytest.mark.parametrize(
    "grammar",
    [parentheses(DEEPEST + 1), parentheses(100_000), references(DEEPEST), references(100_000)],
)
def test_what_is_nested_more_deeply_is_refused(grammar: Grammar, vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError, match=r"^g: is nested too deeply: more than 500 levels"):
        make_engine(default_engine(grammar), vocabulary).compile(grammar)


@pytest.mark.parametrize(
    "text", ['root ::= "a"{3,2}', "root ::= [0-9]{ 11 , 9 }", 'root ::= ("\\"" "{1,2}"){2,1}']
)
def test_less_at_most_than_at_least_is_refused(text: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError, match="less at most than at least"):
        make_engine("gbnf", vocabulary).compile(Grammar(Language.GBNF, text, "g"))


@pytest.mark.parametrize("part", ['"a"{%s}', '"a"{%s,}', '"a"{ 1, %s }', "<[%s]>"])
def test_numbers_that_cannot_be_meant_are_refused(part: str, vocabulary: Vocabulary) -> None:
    """The message was the name of C++'s function that reads a number."""
    for engine, digits in (("gbnf", 20), ("llguidance", 6000)):
        grammar = Grammar(Language.GBNF, "root ::=\n" + part.replace("%s", "9" * digits), "g")
        with pytest.raises(GrammarError, match=r"^g: line 2: a number of more than 9 digits in [{<\[ 1,]*9+"):
            make_engine(engine, vocabulary).compile(grammar)


@pytest.mark.parametrize(
    "text", ['root ::= "a{3,2}"', "root ::= [({3,2}]{2,2} # {3,2}", f'root ::= "{"(" * 999}"']
)
def test_what_stands_in_literals_does_not_count(text: str, vocabulary: Vocabulary) -> None:
    make_engine("gbnf", vocabulary).compile(Grammar(Language.GBNF, text + "\n", "g"))


@pytest.mark.parametrize("value", [-(2**63), 2 - 2**63, -(10**40), 2**63, 2**64 - 1, -1e19, 1e19])
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ('{"const": %s}', "/const"),
        ('{"enum": [1, {"a": [%s]}]}', "/enum"),
        ('{"properties": {"a/b": {"minimum": %s}}}', "/properties/a~1b/minimum"),
        ('{"items": [{"maximum": %s}]}', "/items/0/maximum"),
    ],
)
def test_numbers_that_are_not_counted_are_refused_as_they_are(
    schema: str, place: str, value: float, vocabulary: Vocabulary
) -> None:
    """llguidance counts whole numbers to 2^63 - 1; below -9e18 it works out a range for ever."""
    grammar = Grammar(Language.JSON_SCHEMA, schema.replace("%s", json.dumps(value)), "g")
    with pytest.raises(GrammarError) as error:
        make_engine("llguidance", vocabulary).compile(grammar)
    shown = re.escape(str(value))
    assert re.match(f"g: {place}: {shown}: numbers from {LEAST} to {MOST} may be there; ", str(error.value))


@pytest.mark.parametrize("key", ["minimum", "maxLength", "title"])
def test_numbers_of_thousands_of_digits_are_refused(key: str, vocabulary: Vocabulary) -> None:
    grammar = Grammar(Language.JSON_SCHEMA, f'{{\n"{key}": -{"9" * 6000}}}', "g")
    with pytest.raises(GrammarError) as error:
        make_engine("llguidance", vocabulary).compile(grammar)
    why = f"g: line 2: a number of thousands of digits; numbers from {LEAST} to {MOST} may be there"
    assert str(error.value) == why


def test_references_to_other_documents_are_refused(vocabulary: Vocabulary) -> None:
    grammar = Grammar(Language.JSON_SCHEMA, '{"$ref": "http://example.com/a.json#/b"}', "g")
    with pytest.raises(GrammarError, match=r"^g: \$ref: http://example.com/a.json is another document, and"):
        make_engine("llguidance", vocabulary).compile(grammar)


@pytest.mark.parametrize("value", [LEAST, MOST])
def test_the_last_numbers_are_taken(value: int, vocabulary: Vocabulary) -> None:
    grammar = Grammar(Language.JSON_SCHEMA, json.dumps({"const": value}), "g")
    state = make_engine("llguidance", vocabulary).compile(grammar).start()
    for token in vocabulary.tokenize(str(value).encode(), ends=False).tolist():
        state.advance(token)
    assert state.must_end


def test_references_in_a_circle_and_to_nothing_are_for_the_engine() -> None:
    for to in ("#", "#/$defs/a", "#/no/such", "elsewhere.json"):
        check_bounds(Grammar(Language.JSON_SCHEMA, json.dumps({"$defs": {"a": {"not": {"$ref": to}}}}), "g"))


def test_the_grammars_in_the_box_are_far_from_the_bounds() -> None:
    for path in GRAMMARS.glob("*.lark"):
        check_bounds(read_grammar(path))


@pytest.mark.parametrize("unclosed", ['"', "[", '\\\\"', '"\\\\'])
def test_what_is_not_closed_is_scanned_once(unclosed: str) -> None:
    begin = time.perf_counter()
    check_bounds(Grammar(Language.GBNF, 'root ::= "a" ' + 200_000 * f"{unclosed} ", "g"))
    assert time.perf_counter() - begin < 5
