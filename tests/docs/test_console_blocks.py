from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.console_blocks import compare, rerun


def block(*lines: str, mark: str = "console") -> str:
    return "\n".join(["# Title", "", f"```{mark}", *lines, "```", "", "Text.", ""])


def check(document: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.console_blocks", *options, str(document)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_commands_print_into_their_block():
    shown = block("$ echo two; echo; echo 'lines  '", "one", "$ true", "$ echo a \\", "  b", "c")
    fresh = block(
        "$ echo two; echo; echo 'lines  '", "two", "", "lines", "$ true", "$ echo a \\", "  b", "a b"
    )
    assert rerun(shown) == fresh


def test_blocks_of_a_document_share_a_folder_that_is_not_the_repository():
    text = block("$ echo written >demo/file") + block("$ cat demo/file; ls pyquant/errors.py; ls .git 2>&1")
    fresh = rerun(text)
    assert "written\npyquant/errors.py\nls: cannot access '.git'" in fresh
    assert not (ROOT / "demo" / "file").exists()


def test_a_document_that_is_right_passes(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text(block("$ echo right; echo 0.5 s", "right", "0.7 s"))
    assert check(document, "--check").returncode == 0


def test_a_document_that_is_not_fails_with_the_difference_and_is_left_alone(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text(block("$ echo right", "wrong"))
    checked = check(document, "--check")
    assert checked.returncode == 1
    assert "-wrong\n+right\n" in checked.stdout
    assert "wrong" in document.read_text()
    assert check(document).returncode == 0
    assert document.read_text() == block("$ echo right", "right")


def test_a_command_that_fails_is_named(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text(block("$ ls nothing"))
    checked = check(document, "--check")
    assert checked.returncode == 1
    assert "$ ls nothing\nended with status 2" in checked.stderr


def test_a_block_may_be_left_alone_for_a_reason_alone(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text(block("$ echo right", "wrong", mark="console norun: needs a large model"))
    assert check(document, "--check").returncode == 0
    document.write_text(block("$ echo right", "wrong", mark="console norun"))
    checked = check(document, "--check")
    assert checked.returncode == 1
    assert f"{document}:3: a block that is not run says why" in checked.stderr


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("time 0.51 s (21.0 MB/s)", "time   12.5 s (3.2 GB/s)"),
        ("done 2026-01-02 10:11 in 5 min", "done 2027-11-12 01:01 in 15 min"),
        ("329 tokens/s", "1,329 tokens/s"),
        ("11.3150 ± 0.3097", "11.3149 ± 0.3098"),
        ("+3.60 ± 0.34", "+3.61 ± 0.34"),
        ("0.046056", "0.046400"),
        ("+0.83 ± 0.28   3.089 ± 0.071", "+1.02 ± 0.29   3.148 ± 0.076"),
    ],
)
def test_what_may_differ_does_not_count(shown: str, printed: str):
    assert compare(shown, printed) == []


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("11.3150", "11.4350"),
        ("0.046056", "0.047"),
        ("+0.83 ± 0.28", "+1.13 ± 0.28"),
        ("+0.83 ± 0.28", "+0.83 ± 0.32"),
        ("0.0277 ± 0.0004  0.169", "0.0277 ± 0.0004  0.176"),
        ("3.5 MB  0.0277 ± 0.0004", "3.7 MB  0.0278 ± 0.0004"),
        ("0.0277 ± 0.0004  0.169", "0.0278 ± 0.0004  0.176"),
        ("-0.5 dB", "+0.5 dB"),
        ("4,194,304 codes", "4,194,305 codes"),
        ("40 chunks", "41 chunks"),
        ("5.7 MB", "5.9 MB"),
        ("Q4_0", "Q5_0"),
        ("one line", "one line\nand another"),
    ],
)
def test_what_may_not_differ_counts(shown: str, printed: str):
    assert compare(shown, printed)


def test_what_follows_a_figure_of_other_sums_may_differ_more():
    shown = "3.5 MB  0.0277 ± 0.0004  0.169  +0.80"
    assert compare(shown, "3.5 MB  0.0278 ± 0.0004  0.176  +0.88", same_sums=False) == []
    for printed in ("0.0277 ± 0.0004  0.176", "0.0278 ± 0.0004  0.209", "0.0282 ± 0.0004  0.169"):
        assert compare(shown, f"3.5 MB  {printed}  +0.80", same_sums=False)
    assert compare(shown, "3.7 MB  0.0278 ± 0.0004  0.169  +0.80", same_sums=False)


def test_fractions_of_another_text_do_not_count():
    assert compare("11.3150 of 40", "12.3150 of 40", figures=False) == []
    assert compare("11.3150 of 40", "12.3150 of 41", figures=False)
