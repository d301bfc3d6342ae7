"""Ask a C compiler and the grammar `ansi_c` about each declaration and function of sources that others wrote.

    python analysis/c_declarations.py FOLDER... [--options="-IDIR -DNAME"]

All files `*.c` of the folders go through the preprocessor, and are cut where a declaration or a function
ends; those of headers are among them, and equal ones count once. One is C of the standard if the compiler
finds no error in it with `-std=c90 -pedantic-errors`, wherever it stands. Prints counts, and what the grammar
refuses of the standard.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.grammar.lr.bytewise import takes

# What compilers know beside the standard is taken away, or said in its words. In gnu90 // begins a comment.
PREPROCESS = [
    *("cc", "-E", "-P", "-std=gnu90", "-Ulinux", "-Uunix", "-U__GNUC__", "-D__builtin_va_list=va_list"),
    *(
        "-D_Float128=double",
        "-Dinline=",
        "-D__inline=",
        "-D__inline__=",
        "-D__signed__=signed",
        "-D__asm__=asm",
    ),
    "-D__builtin_va_arg(list,type)=(*(type *)(list))",
    "-D__builtin_offsetof(type,member)=((unsigned long)&((type *)0)->member)",
]
CHECK = [
    *("cc", "-x", "c", "-std=c90", "-pedantic-errors", "-fsyntax-only", "-Dva_list=__builtin_va_list"),
    *("-Wno-overlength-strings", "-fdiagnostics-color=never", "-"),
]
WORDS = re.compile(r"""(["'])(?:\\.|(?!\1)[^\\\n])*\1|[(){}\[\];]|[^\s(){}\[\];"']+""")


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--options", default="", help="of the preprocessor")
    arguments = parser.parse_args()
    files = sorted(file for folder in arguments.folders for file in folder.rglob("*.c"))
    of_standard: dict[str, bool] = {}
    n_read = 0
    for file in files:
        text = preprocess(file, shlex.split(arguments.options))
        if text is not None:
            n_read += 1
            for declaration, correct in judged(text):
                of_standard[declaration] = correct and of_standard.get(declaration, True)
    wanted = [declaration for declaration, correct in of_standard.items() if correct]
    grammar = read_grammar(GRAMMARS / "ansi_c.lark")
    refused = [declaration for declaration in wanted if not takes(grammar, declaration)]
    n_functions = sum(declaration.endswith("}") for declaration in wanted)
    print(f"{n_read:,} of {len(files):,} sources go through the preprocessor")
    print(
        f"{len(of_standard):,} different declarations, {len(wanted):,} of the standard by the compiler, "
        f"{n_functions:,} of them functions"
    )
    print(f"{len(wanted) - len(refused):,} taken by ansi_c")
    for declaration in refused:
        print(f"\n{declaration}")


def preprocess(file: Path, options: list[str]) -> str | None:
    """Return a source without lines that begin with #; None where headers are missing."""
    done = subprocess.run([*PREPROCESS, *options, str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, end="", file=sys.stderr)
        return None
    return re.sub(r"(?m)^#.*$", "", done.stdout)


def judged(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each declaration, and whether the compiler finds no error in any of its lines."""
    english = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(CHECK, input=text, capture_output=True, text=True, env=english, check=False)
    wrong = {int(line) for line in re.findall(r"(?m)^<stdin>:(\d+):\d+: error: ", done.stderr)}
    line, before = 1, 0
    for begin, end in declarations(text):
        line += text.count("\n", before, begin)
        last = line + text.count("\n", begin, end)
        yield text[begin:end], wrong.isdisjoint(range(line, last + 1))
        line, before = last, end


def declarations(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each declaration outside of functions, and each function, begins and ends."""
    depth, begin, in_function, previous = 0, None, False, ""
    for word in WORDS.finditer(text):
        if begin is None:
            begin = word.start()
        if word[0] in ("(", "[", "{"):
            if depth == 0 and word[0] == "{":
                in_function = previous == ")"
            depth += 1
        elif word[0] in (")", "]", "}"):
            depth -= 1
        if depth == 0 and (word[0] == ";" or (in_function and word[0] == "}")):
            yield begin, word.end()
            begin, in_function = None, False
        previous = word[0]


if __name__ == "__main__":
    main()
