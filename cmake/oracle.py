"""Builds stock llama.cpp, unpatched, from the same sdist: the tools that tests compare with."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from vendor import extract

TOOLS = ["llama-quantize", "llama-perplexity", "llama-imatrix", "llama-bench"]
OFF = [
    "LLAMA_CURL",
    "LLAMA_OPENSSL",
    "LLAMA_BUILD_TESTS",
    "LLAMA_BUILD_EXAMPLES",
    "LLAMA_BUILD_SERVER",
    "LLAMA_BUILD_APP",
    "LLAMA_ALL_WARNINGS",
]


def main() -> None:
    sdist, build = Path(sys.argv[1]), Path(sys.argv[2])
    source = extract(sdist, None, build.parent / "vendor")
    scripts = Path(sysconfig.get_path("scripts"))
    configure = [str(scripts / "cmake"), "-G", "Ninja", "-S", str(source), "-B", str(build)]
    configure += [f"-DCMAKE_MAKE_PROGRAM={scripts / 'ninja'}", "-DCMAKE_BUILD_TYPE=Release"]
    configure += ["-DLLAMA_BUILD_COMMON=ON", "-DLLAMA_BUILD_TOOLS=ON", *(f"-D{name}=OFF" for name in OFF)]
    run(configure, quiet=True)
    run([str(scripts / "ninja"), "-C", str(build), *TOOLS])


def run(command: list[str], quiet: bool = False) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout or ''}\npyquant: stock llama.cpp could not be compiled")


if __name__ == "__main__":
    main()
