from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.links import problems_of, tracked_files


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "words.md").write_text(
        "# Words: `bits`, and *KLD*\n\n## More\n\n## More\n\n<a id='by-hand'></a>\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "[words](docs/words.md)",
        "[bits](docs/words.md#words-bits-and-kld)",
        "[second](docs/words.md#more-1)",
        "[by hand](docs/words.md#by-hand)",
        "[elsewhere](https://example.org/no.md)",
        "# Title\n\n[itself](#title)",
        "| a | b |\n|---|---|\n| [words](docs/words.md) | |",
        "Read docs/words.md.",
        "`[text](no.md)` is how a link is written; build/no.md is a file that a build makes",
    ],
)
def test_what_exists_is_no_problem(repository: Path, line: str):
    document = repository / "README.md"
    document.write_text(line)
    assert list(problems_of(document, repository)) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[words](docs/word.md)", "docs/word.md does not exist"),
        ("![figure](docs/no.png)", "docs/no.png does not exist"),
        (
            "[bits](docs/words.md#bits)",
            "no such heading; there are by-hand, more, more-1, words-bits-and-kld",
        ),
        ("[third](docs/words.md#more-2)", "no such heading"),
        ("[out](../elsewhere.md)", "leads out of the repository"),
        ("| a |\n|---|\n| [words](docs/no.md) |", "docs/no.md does not exist"),
        ("Read docs/no.md.", "README.md:1: docs/no.md does not exist"),
    ],
)
def test_what_does_not_exist_is_named(repository: Path, line: str, problem: str):
    document = repository / "README.md"
    document.write_text(line)
    assert problem in "\n".join(problems_of(document, repository))


def test_comments_are_looked_through(repository: Path):
    source = repository / "code.cpp"
    source.write_text("// Told in docs/words.md.\n// And in docs/gone.md.\n")
    assert list(problems_of(source, repository)) == ["code.cpp:2: docs/gone.md does not exist"]


def test_documents_are_among_the_files():
    assert {ROOT / "README.md", ROOT / "recipe/MODEL_CARD.md"} <= set(tracked_files(ROOT))
