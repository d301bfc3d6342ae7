"""Write a query in a Markdown fence: SQLite carries it out on the tables that the prompt names.

The database is in memory. A query may only read it, and has a second and ROWS rows.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.structured.task import Item, Verdict

SECONDS, ROWS, STEPS = 1.0, 1000, 10_000
TABLES = """
CREATE TABLE books(id INTEGER PRIMARY KEY, title TEXT, author TEXT, year INTEGER, price REAL);
CREATE TABLE sales(id INTEGER PRIMARY KEY, book_id INTEGER, city TEXT, copies INTEGER);
"""
ROWS_OF_TABLES = """
INSERT INTO books VALUES (1, 'Dune', 'Herbert', 1965, 9.5), (2, 'Emma', 'Austen', 1815, 7.0),
    (3, 'Ulysses', 'Joyce', 1922, 12.0), (4, 'Persuasion', 'Austen', 1817, 6.5),
    (5, 'Solaris', 'Lem', 1961, 8.0), (6, 'Fiasco', 'Lem', 1986, 8.5), (7, 'Dubliners', 'Joyce', 1914, 5.0);
INSERT INTO sales VALUES (1, 1, 'Bern', 30), (2, 1, 'Rome', 12), (3, 2, 'Bern', 7), (4, 3, 'Oslo', 3),
    (5, 5, 'Rome', 20), (6, 5, 'Oslo', 11), (7, 6, 'Bern', 2), (8, 7, 'Rome', 9), (9, 4, 'Oslo', 5);
"""
QUESTIONS = {
    "List the titles of all books.": "SELECT title FROM books",
    "How many books are there?": "SELECT COUNT(*) FROM books",
    "List the titles of books by Austen.": "SELECT title FROM books WHERE author = 'Austen'",
    "Which titles appeared before 1900?": "SELECT title FROM books WHERE year < 1900",
    "What is the price of Dune?": "SELECT price FROM books WHERE title = 'Dune'",
    "What is the highest price of a book?": "SELECT MAX(price) FROM books",
    "What is the average price of books?": "SELECT AVG(price) FROM books",
    "List each author once.": "SELECT DISTINCT author FROM books",
    "List titles of books that cost more than 8.": "SELECT title FROM books WHERE price > 8",
    "List all titles, ordered by year.": "SELECT title FROM books ORDER BY year",
    "How many books did Lem write?": "SELECT COUNT(*) FROM books WHERE author = 'Lem'",
    "In which year did Ulysses appear?": "SELECT year FROM books WHERE title = 'Ulysses'",
    "How many copies were sold in all?": "SELECT SUM(copies) FROM sales",
    "How many copies were sold in Bern?": "SELECT SUM(copies) FROM sales WHERE city = 'Bern'",
    "List each city once.": "SELECT DISTINCT city FROM sales",
    "List each author with the number of books.": "SELECT author, COUNT(*) FROM books GROUP BY author",
    "List each city with its copies sold.": "SELECT city, SUM(copies) FROM sales GROUP BY city",
    "What is the title of the oldest book?": "SELECT title FROM books ORDER BY year LIMIT 1",
    "List titles of books that were sold in Rome.": (
        "SELECT title FROM books JOIN sales ON books.id = sales.book_id WHERE city = 'Rome'"
    ),
    "How many copies of Dune were sold?": (
        "SELECT SUM(copies) FROM sales JOIN books ON books.id = sales.book_id WHERE title = 'Dune'"
    ),
}
# Blanks and comments may come first, as the grammar ignores them.
FENCE = re.compile(r"(?:\s|--[^\n]*\n|/\*(?:[^*]|\*+[^*/])*\*+/)*```sql\s(.*?);?\s*```\s*", re.DOTALL)

# The grammar markdown_sql.lark of the box, with one query in the place of any statements.
GRAMMAR = Grammar(
    Language.LARK,
    r"""
%import sql.select
%import markdown_sql (FENCE, SPACE, COMMENT, RESERVED)
start: "```sql\n" select [";"] FENCE
%ignore SPACE
%ignore COMMENT
""",
    "query in a fence",
)


class Sql:
    """The task; see the module."""

    name = "sql"
    instruction = (
        "Write one SQL query that answers the question, in a Markdown fence that begins with ```sql and ends "
        f"with ```. The tables are:\n{TABLES.strip()}"
    )
    form = "```sql\nSELECT columns FROM table [JOIN table ON condition] [WHERE condition] ...\n```"
    engine = "lr"
    needs: Sequence[str] = ()
    examples: Sequence[tuple[str, str]] = (
        ("List the years of all books.", "```sql\nSELECT year FROM books;\n```"),
        ("How many sales are in Oslo?", "```sql\nSELECT COUNT(*) FROM sales WHERE city = 'Oslo';\n```"),
        ("What is the lowest price?", "```sql\nSELECT MIN(price) FROM books;\n```"),
    )
    items: Sequence[Item] = tuple(
        Item(question, question, GRAMMAR, query) for question, query in QUESTIONS.items()
    )

    def check(self, item: Item, answer: str) -> Verdict:
        """Carry the query out, and compare its rows with those of the query that is expected.

        Rows may come in any order, unless one is asked for.
        """
        fence = FENCE.fullmatch(answer)
        if fence is None:
            return Verdict()
        try:
            rows = run_query(fence[1])
        except SyntaxError:
            return Verdict()
        except (sqlite3.Error, sqlite3.Warning, OverflowError):
            return Verdict(parses=True)
        expected = run_query(item.expected)
        if "ORDER BY" not in item.expected:
            rows, expected = sorted(rows, key=repr), sorted(expected, key=repr)
        return Verdict(parses=True, evaluates=True, right=rows == expected)


def run_query(query: str) -> list[tuple[Any, ...]]:
    """Carry out a query that may only read, on the tables of the task.

    Raises
    ------
    SyntaxError
        It is no SQL.
    sqlite3.Error, sqlite3.Warning
        It cannot be carried out, does something else than read, or takes too long.
    """
    if "\0" in query:
        raise SyntaxError("a zero byte")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES + ROWS_OF_TABLES)
        connection.set_authorizer(_only_reads)
        end = time.monotonic() + SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
        try:
            cursor = connection.execute(query)
            rows = cursor.fetchmany(ROWS + 1)
        except sqlite3.OperationalError as error:
            if re.search("syntax error|incomplete|unrecognized token", str(error)):
                raise SyntaxError(str(error)) from None
            raise
        if cursor.description is None:
            raise SyntaxError("no query")
        if len(rows) > ROWS:
            raise sqlite3.DataError(f"more than {ROWS} rows")
        return rows


def _only_reads(action: int, *_: str | None) -> int:
    reads = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reads else sqlite3.SQLITE_DENY


TASK = Sql()
