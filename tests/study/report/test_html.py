"""The page: every name in it is text, whatever it is made of; colors of the dark come by variables."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pyquant.study.report.html import report
from pyquant.study.store import Store

EVIL = [
    't"><svg onload=alert(5)>.txt', "<script>alert(1)</script>", "</script><b>", "a'b\"c", "<!-- x -->",
    r"$\frac$ $x$", "&lt;i&gt;", "{{ 7 * 7 }}",
]  # fmt: skip
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "strong", "div",
    "table", "thead", "tbody", "tr", "th", "td", "input", "label", "figure", "figcaption", "dl", "dt", "dd",
    "code", "script", "svg", "g", "path", "text", "tspan", "defs", "use", "rect", "clippath", "image",
}  # fmt: skip


class Page(HTMLParser):
    """The tags of a page, their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts = 0
        self.comments = ""
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.scripts += tag == "script"

    def handle_comment(self, data: str) -> None:
        self.comments += data

    def handle_data(self, data: str) -> None:
        self.text += data


def renamed(value: object, evil: str) -> object:
    """Give everything that people choose an evil name: strings of study.json, and provenance."""
    if isinstance(value, dict):
        kept = ("sha256", "mode", "how", "schema", "started")
        return {key: part if key in kept else renamed(part, evil) for key, part in value.items()}
    if isinstance(value, list):
        return [renamed(part, evil) for part in value]
    is_key = isinstance(value, str) and re.fullmatch(r"[a-z]+-[0-9a-f]{16}", value)
    return f"{value} {evil}" if isinstance(value, str) and not is_key else value


@pytest.mark.ci
@pytest.mark.parametrize("evil", EVIL)
def test_names_are_text(copied_study: Path, evil: str) -> None:
    path = copied_study / "study.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**renamed(written, evil), "schema": written["schema"]}))
    for run in (copied_study / "runs").glob("*.json"):
        record = json.loads(run.read_text())
        provenance = renamed(record["provenance"], evil) | {"warnings": [evil]}
        run.write_text(json.dumps(record | {"provenance": provenance}))
    page = Page(report(Store(copied_study)))
    assert page.tags <= ALLOWED
    assert not [name for name in page.attributes if name.startswith("on")]
    assert page.scripts == 1
    assert page.comments == ""
    names = [written["title"], written["texts"][0]["name"], written["models"][0]["name"]]
    names += [row["label"] for row in written["models"][0]["rows"]]
    for name in names:
        assert page.text.count(f"{name} {evil}") >= 1


def test_figures_change_colors_with_the_page(finished_study: Path) -> None:
    page = (finished_study / "report.html").read_text()
    styles = "".join(re.findall(r'style="[^"]*"', page))
    assert "currentColor" in styles
    assert "var(--paper)" in styles
    assert not re.search("#000000|#ffffff|#dddddd|#666666", styles)
    assert "prefers-color-scheme: dark" in page
    for name in re.findall(r"var\((--[a-z]+)\)", page):
        assert page.count(f"{name}: #") == 2, name  # in light and in dark


def test_lesser_columns_are_behind_a_choice(finished_study: Path) -> None:
    page = (finished_study / "report.html").read_text()
    heads = re.findall(r"<th scope=\"col\"( class=\"lesser\")?[^>]*>([^<]*)<", page)
    shown = [head for lesser, head in heads if not lesser]
    # Of the paired differences, and of the results.
    assert [head for head in shown if "bits" in head and "entropy" not in head] == ["bits", "bits"]
    assert page.index("Paired differences") < page.index("Findings on")
    assert {"code bits", "bits, all tensors", "made in (s)"} <= {head for lesser, head in heads if lesser}
    assert page.count('<input type="checkbox"') == page.count("all columns</label>") == 1
