"""Loops that clang compiled for 64-bit ARM: how many of their instructions are NEON's.

    python -m tests.support.vector_loops

of the objects that `make wheel ARCHITECTURE=aarch64` leaves; needs aarch64-linux-gnu-objdump (Debian:
binutils-aarch64-linux-gnu). Decoding of rANS is not among them: it looks up a table, and NEON has no gathers.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

OBJECTS = ROOT / "build/wheel-aarch64/cmake/CMakeFiles/pyquant_armv8_2.dir/csrc"
OBJDUMP = "aarch64-linux-gnu-objdump"

# What takes the time of a kernel: its object, and the function that the loop is in.
KERNELS = {
    "KLD of logits": ("kernels/kld.cpp.o", "compare_logits"),
    "softmax": ("generation/sample/verify.cpp.o", "Weights::set"),
    "GPTQ, error feedback": ("gptq/formats/q4_k.cpp.o", "::sub_block"),
    "GPTQ, search of scales": ("gptq/formats/q4_k.cpp.o", "search_scale_and_minimum"),
    "GPTQ, coordinate descent": ("gptq/formats/q4_k.cpp.o", "refine_sub_block"),
    "product with a table": ("kernels/table_product.cpp.o", "NeonDotprod"),
}

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(.*)")
BRANCH = re.compile(r"^(?:b|b\.\w+|cbn?z|tbn?z)\s.*?([0-9a-f]+) <")
NEON = re.compile(r"\bv\d+\.\d*[bhsd]\b")


def densest_loop(folder: Path, kernel: str) -> tuple[int, int]:
    """Count the instructions of NEON, and all, of a kernel's innermost loop that has most of NEON."""
    name, function = KERNELS[kernel]
    loops = [
        (sum(bool(NEON.search(text)) for text in body), len(body))
        for found, code in _functions(folder / name)
        if function in found
        for body in _innermost_loops(code)
    ]
    return max(loops)


def _functions(path: Path) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Read each function's addresses and instructions."""
    command = [OBJDUMP, "--disassemble", "--demangle", "--no-show-raw-insn", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for part in said.split("\n\n"):
        lines = part.strip().splitlines()
        if lines and (named := FUNCTION.match(lines[0])):
            found = [INSTRUCTION.match(line) for line in lines[1:]]
            yield named[1], [(int(one[1], 16), one[2]) for one in found if one]


def _innermost_loops(code: list[tuple[int, str]]) -> Iterator[list[str]]:
    """Find branches backwards that have no other between them and where they go."""
    place = {address: i for i, (address, _) in enumerate(code)}
    begin = {
        i: place[target]
        for i, (_, text) in enumerate(code)
        if (to := BRANCH.match(text)) and (target := int(to[1], 16)) in place and place[target] <= i
    }
    for end, first in begin.items():
        if not any(first <= other < end and begin[other] >= first for other in begin):
            yield [text for _, text in code[first : end + 1]]


if __name__ == "__main__":
    print("| kernel | instructions of its loop | NEON's |\n|---|---|---|")
    for kernel in KERNELS:
        of_neon, together = densest_loop(OBJECTS, kernel)
        print(f"| {kernel} | {together} | {of_neon} |")
