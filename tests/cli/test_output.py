"""Names in what is printed, whatever rich reads in them."""

from __future__ import annotations

import pytest

from pyquant.cli.output import print_sentence, print_table


@pytest.mark.parametrize("name", ["[/x] t", "[bold]", "run:100:x.gguf"])
def test_names_are_printed_as_they_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table([name, "n"], [[name, name]], title=name)
    print_sentence(name)
    assert capsys.readouterr().out.count(name) == 5
