"""Completion in shells: the script, and what it is answered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ENVIRONMENT, run

PYQUANT = Path(sys.executable).with_name("pyquant")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_the_script(shell: str, tmp_path: Path) -> None:
    script = run("completion", shell)
    assert script.returncode == 0
    assert "_PYQUANT_COMPLETE" in script.stdout
    if shutil.which(shell):
        (tmp_path / "script").write_text(script.stdout)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("pyquant comp", ["compare", "completion"]),
        ("pyquant study va", ["validate"]),
        ("pyquant quantize --error-p", ["--error-propagation"]),
    ],
)
def test_bash_completes(line: str, answer: list[str]) -> None:
    script = f"""
        eval "$({PYQUANT} completion bash)"
        COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _pyquant_completion {PYQUANT}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{PYQUANT.parent}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**ENVIRONMENT, "PATH": path}, check=True
    )
    assert told.stdout.split() == answer


def test_other_shells_are_refused() -> None:
    refused = run("completion", "cmd")
    assert refused.returncode == 2
    assert "'bash', 'zsh', 'fish'" in refused.stderr
