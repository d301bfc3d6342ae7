"""Checks that what documents and comments point to exists: python -m tests.support.links

In Markdown, every relative link leads to a file of the repository, and every anchor to a heading or an HTML
anchor of its document. In all text files, a path that is mentioned exists (such as docs/quantize.md in a
comment). Addresses of other hosts are not looked at: this needs no network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support import ROOT

FOLDERS = "analysis|benchmarks|cmake|configs|csrc|docs|pyquant|recipe|tests"
MENTION = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w\.(?:cmake|cpp|h|md|patch|py|toml)\b(?![*{{/])")
NAME_WHAT_IS_GONE = ("CHANGELOG.md", "tests/docs/test_links.py")
HTML_ANCHOR = re.compile(r"""<a\s+(?:id|name)=["']([^"']+)["']""")


def main() -> None:
    problems = [problem for path in tracked_files(ROOT) for problem in problems_of(path, ROOT)]
    if problems:
        sys.exit("\n".join(problems))


def tracked_files(root: Path) -> list[Path]:
    """Text files that git has, or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [root / name for name in names if name]
    return [path for path in paths if path.is_file() and is_text(path.read_bytes())]


def is_text(content: bytes) -> bool:
    """Say whether it is UTF-8 without zeros, as inputs of the fuzzers, pictures and models are not."""
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def problems_of(path: Path, root: Path) -> Iterator[str]:
    """Give what a file points to that does not exist, a line each."""
    name = path.relative_to(root)
    if path.suffix == ".md":
        yield from (f"{name}: {problem}" for problem in broken_links(path, root))
    if str(name) in NAME_WHAT_IS_GONE:
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for mention in MENTION.findall(line):
            if not (root / mention).exists():
                yield f"{name}:{number}: {mention} does not exist"


def broken_links(path: Path, root: Path) -> Iterator[str]:
    for token in inline_tokens(path):
        target = str(token.attrs.get("href") or token.attrs.get("src") or "")
        if not target or re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        linked = (path.parent / file).resolve() if file else path
        if not linked.is_relative_to(root):
            yield f"{target} leads out of the repository"
        elif not linked.exists():
            yield f"{target} does not exist"
        elif anchor and linked.suffix == ".md" and anchor not in anchors(linked):
            yield f"{target}: no such heading; there are {', '.join(sorted(anchors(linked)))}"


@cache
def anchors(path: Path) -> frozenset[str]:
    """Anchors of a document, as GitHub names them: headings in lower case, later ones of a name numbered."""
    taken: dict[str, int] = {}
    names = set(HTML_ANCHOR.findall(path.read_text()))
    tokens = MarkdownIt().parse(path.read_text())
    for opening, heading in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        text = "".join(child.content for child in heading.children or [])
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        n_before = taken.get(slug, 0)
        taken[slug] = n_before + 1
        names.add(f"{slug}-{n_before}" if n_before else slug)
    return frozenset(names)


def inline_tokens(path: Path) -> Iterator[Token]:
    for token in MarkdownIt().enable("table").parse(path.read_text()):
        yield from token.children or []


if __name__ == "__main__":
    main()
