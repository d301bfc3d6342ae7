from __future__ import annotations

import re
from collections import Counter

from tests.support import ROOT

DOCS = ROOT / "docs"


def test_the_index_has_every_document():
    index = (DOCS / "README.md").read_text()
    missing = [path.name for path in DOCS.glob("**/*.md") if f"({path.relative_to(DOCS)})" not in index]
    assert missing == ["README.md"]


def test_the_glossary_has_every_word_once():
    words = Counter(re.findall(r"\*\*(.+?)\*\*", (DOCS / "glossary.md").read_text().lower()))
    assert len(words) > 50
    assert [word for word, n in words.items() if n > 1] == []


def test_the_form_for_bugs_asks_for_versions():
    assert "pyquant info" in (ROOT / ".github/ISSUE_TEMPLATE/bug.md").read_text()
