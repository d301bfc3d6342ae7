"""Tasks: their examples keep to their grammars, and their checks cannot be fooled."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from pyquant.errors import ConfigError
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.grammar.lr.bytewise import bytewise
from pyquant.generation.structured.task import TECHNIQUES, Item, Verdict, as_text, messages
from pyquant.generation.structured.tasks import TASKS, load_task
from pyquant.llama.vocabulary import Vocabulary

RIGHT = Verdict(parses=True, evaluates=True, right=True)


def ask(task: str, question: str, expected: object) -> tuple[object, Item]:
    loaded = load_task(task)
    return loaded, Item("x", question, loaded.items[0].grammar, expected)


@pytest.mark.parametrize("name", TASKS)
def test_examples_keep_to_the_grammar(name: str, vocabulary: Vocabulary) -> None:
    task = load_task(name)
    assert len(task.examples) == 3
    assert len({item.name for item in task.items}) == len(task.items) == 20
    compiled = make_engine(task.engine, vocabulary).compile(task.items[0].grammar)
    for _, answer in task.examples:
        state = compiled.start()
        for token in vocabulary.tokenize(answer.encode(), ends=False).tolist():
            state.advance(token)
        assert state.may_end
        verdict = task.check(task.items[0], answer)
        assert (verdict.parses, verdict.evaluates) == (True, True)


@pytest.mark.parametrize("grammar", ["task", "box"])
def test_a_fence_ends_the_text(grammar: str, vocabulary: Vocabulary) -> None:
    """What is ignored elsewhere, such as comments, does not follow it: models would go on there."""
    text = load_task("sql").items[0].grammar if grammar == "task" else read_grammar(Path("markdown_sql"))
    state = make_engine("lr", vocabulary).compile(text).start()
    query = b"```sql\n-- all\nSELECT /* each */ title FROM books -- of them\n;\n```"
    for token in vocabulary.tokenize(query, ends=False).tolist():
        state.advance(token)
    ends = set(vocabulary.end_tokens().tolist())
    pieces = vocabulary.pieces()
    assert state.may_end
    assert {pieces[i] for i in range(len(pieces)) if i not in ends and state.allows(i)} == {b"\n"}
    state.advance(pieces.index(b"\n"))
    assert state.must_end


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("9 * 15 == 135", RIGHT),
        ("9*15=135=100+35", RIGHT),  # a single = counts as ==
        ("(9 * (10 + 5)) == -(-135)", RIGHT),
        ("270 / 2", RIGHT),
        ("9 * 15", Verdict(parses=True, evaluates=True)),  # says nothing new
        ("9 * 15 == 134", Verdict(parses=True, evaluates=True)),
        ("45 * 4 == 180", Verdict(parses=True, evaluates=True)),  # equal, but not what was asked
        ("9 * 15 == 135 / 0", Verdict(parses=True)),
        ("9 * 15 == (1 == 1) + 134", Verdict(parses=True)),  # a truth is no number
        ("9 * 15 == ", Verdict()),
        ("The answer is 135", Verdict()),
        ("", Verdict()),
        ("__import__('os')", Verdict()),
        ("9 ** 999999999", Verdict()),
    ],
)
def test_arithmetic_is_checked(answer: str, verdict: Verdict) -> None:
    task, item = ask("arithmetic", "9 * 15", 135)
    assert task.check(item, answer) == verdict


def test_deep_arithmetic_is_no_traceback() -> None:
    task, item = ask("arithmetic", "9 * 15", 135)
    assert task.check(item, "(" * 50_000 + "135" + ")" * 50_000) in (Verdict(parses=True), RIGHT)


CALL = {"function": "set_timer", "arguments": {"minutes": 10, "label": "tea"}}


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        (CALL, RIGHT),
        ({**CALL, "arguments": {"minutes": 10, "label": "Tea."}}, RIGHT),
        ({**CALL, "arguments": {"minutes": 11, "label": "tea"}}, Verdict(parses=True, evaluates=True)),
        ({**CALL, "arguments": {"minutes": "10", "label": "tea"}}, Verdict(parses=True)),
        ({**CALL, "arguments": {"minutes": True, "label": "tea"}}, Verdict(parses=True)),
        ({**CALL, "arguments": {"minutes": 10}}, Verdict(parses=True)),
        ({**CALL, "more": 1}, Verdict(parses=True)),
        ({"function": ["set_timer"], "arguments": {}}, Verdict(parses=True)),
        ([], Verdict(parses=True)),
    ],
)
def test_calls_are_checked(call: object, verdict: Verdict) -> None:
    task, item = ask("function_call", "Set a timer of 10 minutes called tea.", CALL)
    assert task.check(item, json.dumps(call)) == verdict


EVERY_BOOK = "SELECT title FROM books"
COUNTS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


@pytest.mark.parametrize(
    ("query", "verdict"),
    [
        (EVERY_BOOK, RIGHT),
        (EVERY_BOOK + ";", RIGHT),
        ("select TITLE from books order by year desc", RIGHT),  # no order was asked for
        ("SELECT title, year FROM books", Verdict(parses=True, evaluates=True)),
        ("SELECT name FROM books", Verdict(parses=True)),  # there is no such column
        ("SELECT title FORM books WHERE", Verdict()),
        ("SELECT title FROM books; SELECT 1", Verdict(parses=True)),
        ("DELETE FROM books", Verdict(parses=True)),
        ("DROP TABLE books", Verdict(parses=True)),
        ("ATTACH 'x.db' AS x", Verdict(parses=True)),
        ("PRAGMA writable_schema = 1", Verdict(parses=True)),
        (f"{COUNTS} SELECT x FROM c", Verdict(parses=True)),  # too many rows
        (f"{COUNTS} SELECT MAX(x) FROM c", Verdict(parses=True)),  # takes too long
        ("SELECT zeroblob(2000000000)", Verdict(parses=True)),
        ("\0", Verdict()),
        ("-- nothing", Verdict()),
    ],
)
def test_queries_are_carried_out(query: str, verdict: Verdict) -> None:
    task = load_task("sql")
    assert task.check(task.items[0], f"```sql\n{query}\n```") == verdict


def test_a_query_without_a_fence_does_not_parse() -> None:
    task = load_task("sql")
    for answer in (EVERY_BOOK, f"```\n{EVERY_BOOK}\n```", f"```sql\n{EVERY_BOOK}\n``` There."):
        assert task.check(task.items[0], answer) == Verdict()


def test_what_the_grammar_ignores_may_stand_before_the_fence() -> None:
    task = load_task("sql")
    assert task.check(task.items[0], f"-- all\n /* of ** them */\n```sql\n{EVERY_BOOK}\n```") == RIGHT
    assert task.check(task.items[0], f"/* all ```sql\n{EVERY_BOOK}\n```") == Verdict()


def test_words_of_sqlite_are_names_in_queries_where_sqlite_takes_them() -> None:
    task = load_task("sql")
    automaton = bytewise(task.items[0].grammar)
    words = set(re.findall(r'"([a-z_]+)"i', (GRAMMARS / "sql.lark").read_text(encoding="utf-8")))
    assert {"table", "into", "add", "key"} < words
    n_taken = 0
    for word in words:
        for query in (f"SELECT 1 AS {word}", f"SELECT {word}.a FROM {word}", f"SELECT a FROM b {word}"):
            state = automaton.start()
            if all(state.advance(byte) for byte in f"```sql\n{query}\n```".encode()) and state.may_end:
                assert task.check(task.items[0], f"```sql\n{query}\n```").parses, query
                n_taken += 1
    assert n_taken > 100


def test_rows_come_in_the_order_that_is_asked_for() -> None:
    task = load_task("sql")
    (item,) = [item for item in task.items if "ordered" in item.question]
    ordered = "```sql\nSELECT title FROM books ORDER BY year\n```"
    assert task.check(item, ordered) == RIGHT
    assert not task.check(item, ordered.replace("year", "year DESC")).right


def test_what_is_expected_of_queries_can_be_carried_out() -> None:
    task = load_task("sql")
    for item in task.items:
        assert task.check(item, f"```sql\n{item.expected}\n```") == RIGHT


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("int square(int n) { return n * n; }", RIGHT),
        ("static int square(int n)\n{\n  int m = n;\n  return m * n;\n}", RIGHT),
        ("long square(long n) { return n * n; }", Verdict(parses=True, evaluates=True)),
        ("int sq(int n) { return n * n; }", Verdict(parses=True, evaluates=True)),
        ("int square(int n) { return m; }", Verdict(parses=True)),
        ("int square(int n) { return pow(n, 2); }", Verdict(parses=True)),
        # lark's own lexer ends the first name after `_t`, as one of a type.
        ("int square(int n) { int sum_to = n; return sum_to * n; }", RIGHT),
        ("int square(int n) { return n * n }", Verdict()),
        ("def square(n): return n * n", Verdict()),
        ('#include "/etc/passwd"\nint square(int n) { return n; }', Verdict()),
        ("", Verdict()),
    ],
)
def test_functions_are_compiled(text: str, verdict: Verdict) -> None:
    task = load_task("c_function")
    assert task.check(task.items[0], text) == verdict


def test_a_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="task c_function: its check runs cc, which is not there"):
        load_task("c_function")


@pytest.mark.parametrize("answer", ["", "{", "[" * 100_000, '{"function": '])
def test_what_is_no_json_does_not_parse(answer: str) -> None:
    task, item = ask("function_call", "x", CALL)
    assert task.check(item, answer) == Verdict()


def test_techniques_differ_in_what_they_show() -> None:
    task = load_task("arithmetic")
    item = task.items[0]
    shown = {technique: messages(task, item, technique) for technique in TECHNIQUES}
    assert [len(shown[technique]) for technique in TECHNIQUES] == [2, 4, 8, 2]
    assert "%ignore" in shown["grammar in the prompt"][0]["content"]
    assert all(turns[-1] == {"role": "user", "content": "9 * 15"} for turns in shown.values())
    assert as_text(shown["grammar"]).endswith(
        "\nQuestion: 4 * 12\nAnswer: 4 * 12 == 48 == 40 + 8\nQuestion: 9 * 15\nAnswer: "
    )


def test_there_is_no_other_task() -> None:
    with pytest.raises(ConfigError, match=r"task: expected one of arithmetic, .*, got 'x'"):
        load_task("x")
