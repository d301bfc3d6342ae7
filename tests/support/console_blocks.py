"""Runs the console blocks of README.md and docs/*.md again.

    python -m tests.support.console_blocks [--check] [FILE...]

Without --check what the commands print now is put into the documents, with the figures that they write.
With --check nothing is changed, and a difference fails.

A block begins with ```console. Its lines after `$ ` are commands, which go on where a line ends in a
backslash; the lines below a command are what it prints to stdout. Each document's blocks run in order, by a
shell, in a fresh folder that has links to the repository's own folders and the empty folders demo/ and docs/.
A command has to succeed, except where it shows its errors (2>&1). A block that begins with
```console norun: REASON is left alone.

What differs from run to run is not compared: times, rates, dates and spaces (MASKED). Figures come from sums
of floats, which another CPU adds in another order, so fractions may differ by 1 % or by one in the last
decimal. Hessians are rounded to BF16 by CPUs that multiply it, and summed in another order by AMX: codes come
out otherwise, so a figure that has its standard error beside it may differ by that, and the error by a tenth.
What follows one that differs, such as the KLD's percentiles, may differ by a fifth where Hessians are not
summed as SUMS has it. All other text has to be the same.

Most figures are of the text that Python itself carries (pyquant.data.evaluation_text), which differs from
release to release. TEXT has the SHA-256 of the text that the documents show figures of. Where this Python
carries another one, fractions are not compared.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyquant import _core
from pyquant.data import evaluation_text
from pyquant.machine.cpu import n_threads
from tests.support import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NORUN = re.compile(r"^```console norun(?!: \w)", re.MULTILINE)
LINKED = ("analysis", "benchmarks", "configs", "csrc", "pyquant", "recipe", "tests")
MASKED = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?"  # dates
    r"|\b[\d.,]+ ?(?:[kMG]?B|[kMG]?tokens|tokens|weights|codes|chunks)(?:/s\b| per second\b)"  # rates
    r"|\b\d+(?:\.\d+)? (?:ms|s|min|h|hours?|minutes?|seconds?)\b"  # times
    r"|─+"  # rules of tables, as wide as their figures
)
FRACTION = re.compile(r"\d*\.\d+")
FIGURE = re.compile(rf"({FRACTION.pattern})(?: ± ({FRACTION.pattern}))?")  # and its standard error
TEXT = ROOT / "tests" / "support" / "documents_text.sha256"
SUMS = ROOT / "tests" / "support" / "documents_sums.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, change nothing")
    parser.add_argument("documents", nargs="*", type=Path, default=documents(), metavar="FILE")
    arguments = parser.parse_args()
    figures = shows_this_text()
    if arguments.check and not figures:
        print(
            "fractions are not compared: this Python carries another text than the documents show",
            file=sys.stderr,
        )
    texts = {path: path.read_text() for path in arguments.documents}
    for path, text in texts.items():
        if marked := NORUN.search(text):
            line = text[: marked.start()].count("\n") + 1
            sys.exit(f"{path}:{line}: a block that is not run says why: ```console norun: REASON")
    stale = False
    # Documents do not share a folder, so they run side by side.
    with ThreadPoolExecutor(n_threads(None)) as pool:
        every = pool.map(lambda text: rerun(text, keep_figures=not arguments.check), texts.values())
        fresh_texts = list(every)
    for (path, text), fresh in zip(texts.items(), fresh_texts):
        if not arguments.check:
            path.write_text(fresh)
        elif differences := compare(
            text, fresh, figures=figures, same_sums=sums() == SUMS.read_text().strip()
        ):
            stale = True
            print(f"{path}:", *differences, sep="\n")
    if not arguments.check and arguments.documents == documents():
        TEXT.write_text(f"{text_sha256()}\n")
        SUMS.write_text(f"{sums()}\n")
    if stale:
        sys.exit("documents show what commands no longer print: run `make documents`")


def text_sha256() -> str:
    return hashlib.sha256(evaluation_text().encode()).hexdigest()


def sums() -> str:
    """Name what this CPU sums Hessians by."""
    return "AMX" if _core.HAS_AMX_PRODUCTS else "BF16" if _core.HAS_BF16_PRODUCTS else "F32"


def shows_this_text() -> bool:
    """Say whether the documents' figures are of this Python's text."""
    return text_sha256() == TEXT.read_text().strip()


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def rerun(text: str, *, keep_figures: bool = False) -> str:
    """The document with what its commands print now. keep_figures: what they draw to docs/ goes there."""
    if not BLOCK.search(text):
        return text
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        for name in ("demo", "docs"):
            (folder / name).mkdir()
        fresh = BLOCK.sub(lambda block: f"```console\n{rerun_block(block[1], folder)}```", text)
        for figure in folder.glob("docs/*") if keep_figures else []:
            shutil.copyfile(figure, ROOT / "docs" / figure.name)
    return fresh


def rerun_block(block: str, folder: Path) -> str:
    commands = re.findall(r"^\$ .*(?:(?<=\\)\n.*)*", block, re.MULTILINE)
    return "".join(f"{command}\n{run(command.removeprefix('$ '), folder)}" for command in commands)


def run(command: str, folder: Path) -> str:
    """Give what a command prints, without empty lines around it."""
    print(f"$ {command}", file=sys.stderr)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "110", "NO_COLOR": "1"}
    environment |= {"OMP_WAIT_POLICY": "passive", "PYQUANT_CACHE": str(folder / "cache")}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0 and "2>&1" not in command:
        sys.exit(f"$ {command}\nended with status {done.returncode}")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "".join(f"{line}\n" for line in "\n".join(lines).strip("\n").splitlines())


def compare(shown: str, fresh: str, *, figures: bool = True, same_sums: bool = True) -> list[str]:
    """Lines of a difference; none where only what may differ does.

    figures: fractions are compared. same_sums: Hessians of both were summed alike.
    """
    old, new = shown.splitlines(), fresh.splitlines()
    if len(old) == len(new):
        # A line that is as good as the new one is left as it is.
        new = [line if alike(line, other, figures, same_sums) else other for line, other in zip(old, new)]
    return list(difflib.unified_diff(old, new, "as shown", "as printed now", lineterm="", n=1))


def alike(shown: str, printed: str, figures: bool, same_sums: bool) -> bool:
    """Say whether two lines differ at most by what may differ."""
    shown, printed = (" ".join(MASKED.sub("#", line).split()) for line in (shown, printed))
    if FRACTION.sub("#", shown) != FRACTION.sub("#", printed):
        return False
    may_differ = 0.01
    for figure, other in zip(FIGURE.findall(shown), FIGURE.findall(printed) if figures else []):
        if not close(figure, other, may_differ):
            return False
        if figure[1] and figure != other and not same_sums:
            may_differ = 0.2
    return True


def close(shown: tuple[str, str], printed: tuple[str, str], may_differ: float) -> bool:
    """Say whether two figures, each with its standard error or "", differ at most by what may differ.

    may_differ: the share of a figure without one.
    """
    (value, error), (other, its_error) = shown, printed
    if not error:
        return near(value, other, may_differ * float(value))
    return near(value, other, float(error)) and near(error, its_error, 0.1 * float(error))


def near(shown: str, printed: str, may_differ: float) -> bool:
    """Say whether two numbers differ by at most so much, or by one in the last decimal."""
    last = 10.0 ** -len(shown.partition(".")[2])
    return abs(float(shown) - float(printed)) <= max(1.001 * last, may_differ)


if __name__ == "__main__":
    main()
