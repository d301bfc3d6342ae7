"""Writes pyquant/_core.pyi, the types of the C++ extension, from what the compiled extension says of itself.

python cmake/write_stub.py           writes the stub
python cmake/write_stub.py --check   fails, with the difference, where the stub no longer fits the extension
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

STUB = Path(__file__).resolve().parents[1] / "pyquant" / "_core.pyi"
SCRIPTS = Path(sysconfig.get_path("scripts"))

# Texts that pybind11-stubgen writes otherwise than a reader, or mypy, wants them.
REWRITES = [
    # Numbers: pybind11 also takes what converts itself; pyquant gives numbers.
    (r"typing\.SupportsInt \| typing\.SupportsIndex", "int"),
    (r"typing\.SupportsFloat \| typing\.SupportsIndex", "float"),
    # Values of constants differ between machines, addresses between runs.
    (r"^( *\w+: [\w.\[\]]+) = .*$", r"\1"),
    # An argument that may be None says so.
    (r": (\w+|collections\.abc\.Callable\[\[int\], None\]) = None\b", r": \1 | None = None"),
    (r"^__all__.*\n", ""),
]


def main() -> None:
    expected = generated()
    if sys.argv[1:] != ["--check"]:
        STUB.write_text(expected)
        return
    difference = list(
        difflib.unified_diff(
            STUB.read_text().splitlines(),
            expected.splitlines(),
            "pyquant/_core.pyi",
            "the extension",
            lineterm="",
        )
    )
    if difference:
        sys.exit(
            "\n".join([*difference, "pyquant/_core.pyi does not fit the extension; `make stub` writes it"])
        )


def generated() -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [SCRIPTS / "pybind11-stubgen", "--exit-code", "--output-dir", folder, "pyquant._core"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        text = (Path(folder) / "pyquant" / "_core.pyi").read_text()
    for pattern, replacement in REWRITES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    for command in (["check", "--select=I", "--fix", "--quiet"], ["format"]):
        command = [SCRIPTS / "ruff", *command, "--stdin-filename", STUB, "-"]
        text = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    main()
