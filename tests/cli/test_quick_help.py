"""`pyquant --help` answers at once: in few times what typer alone takes; large libraries would take more."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.support.command import commands, run

# Libraries that take long to import, and what only work needs.
LARGE = {"numpy", "rich", "matplotlib", "gguf", "llama_cpp", "jinja2", "pyquant._core"}
MOST = 3.0  # times the CPU time of Python with typer alone; measured: 2.4


def imported(words: list[str]) -> set[str]:
    """Print a command's help; return the modules that are imported then."""
    script = (
        "import sys\nfrom pyquant.cli import app\n"
        f"try: app({words!r})\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    told = run(script=script)
    assert len(told.stdout.splitlines()) > 5, told.stderr
    return set(told.stderr.split())


GROUPS = sorted({name.partition(" ")[0] for name in commands() if " " in name})


@pytest.mark.ci
@pytest.mark.parametrize("command", ["", *commands(), *GROUPS])
def test_help_imports_nothing_large(command: str) -> None:
    modules = imported([*command.split(), "--help"])
    assert "pyquant.cli" in modules
    # Options of a command are checked with pydantic by typer itself.
    assert modules & (LARGE if command else LARGE | {"pydantic"}) == set()


def test_help_takes_little_time() -> None:
    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Other work on the same core makes even CPU time longer: both are measured in turns, and one
    # undisturbed turn is enough.
    assert any(
        seconds("-m", "pyquant", "--help") <= MOST * seconds("-c", "import typer.main") for _ in range(20)
    )
