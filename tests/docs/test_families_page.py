"""The table of docs/families.md is what the families are."""

from __future__ import annotations

from tests.support.families_page import PAGE, page


def test_the_table_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `make documents`"
