"""docs/schemes.md, followed to the letter.

    python -m tests.schemes.test_page

puts what its commands print now into the page.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.console_blocks import LINKED, compare, rerun_block, shows_this_text

PAGE = ROOT / "docs" / "schemes.md"
BLOCK = re.compile(r"^(```console [^\n]*\n)(.*?)^```$", re.DOTALL | re.MULTILINE)


def follow(folder: Path) -> str:
    """The page with what its commands print, in a folder that has the page's file and what a clone has."""
    text = PAGE.read_text()
    (folder / "coarse.py").write_text(re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1])
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    (folder / "demo").mkdir()
    return BLOCK.sub(lambda block: f"{block[1]}{rerun_block(block[2], folder)}```", text)


@pytest.mark.ci
def test_the_page_can_be_followed(tmp_path: Path) -> None:
    assert len(BLOCK.findall(PAGE.read_text())) == 2
    assert compare(PAGE.read_text(), follow(tmp_path), figures=shows_this_text()) == []


if __name__ == "__main__":
    folder = ROOT / "build" / "page"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    PAGE.write_text(follow(folder))
    sys.exit()
