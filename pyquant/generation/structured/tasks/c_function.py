"""Write a function in C: a compiler checks its syntax and types. Nothing is linked or run.

Preprocessing is off, so no text makes the compiler open a file.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.grammar.lr.bytewise import takes
from pyquant.generation.structured.task import Item, Verdict

COMPILER = "cc"
SECONDS = 4.0
# Functions that are asked for: the name, the type, and in words what it does.
FUNCTIONS: list[tuple[str, str, str]] = [
    ("square", "int {}(int)", "the square of a number"),
    ("larger", "int {}(int, int)", "the larger of two numbers"),
    ("smaller", "int {}(int, int)", "the smaller of two numbers"),
    ("absolute", "int {}(int)", "the absolute value of a number"),
    ("is_even", "int {}(int)", "1 if a number is even, else 0"),
    ("sum_to", "int {}(int)", "the sum of the numbers from 1 to n"),
    ("factorial", "long {}(int)", "the factorial of n"),
    ("power", "double {}(double, int)", "a number to the power of n"),
    ("length", "int {}(const char *)", "the length of a string"),
    ("count_letter", "int {}(const char *, char)", "how often a letter occurs in a string"),
    ("sum_of", "int {}(const int *, int)", "the sum of n numbers in an array"),
    ("largest_of", "int {}(const int *, int)", "the largest of n numbers in an array"),
    ("mean_of", "double {}(const double *, int)", "the mean of n numbers in an array"),
    ("swap", "void {}(int *, int *)", "nothing, and swaps two numbers"),
    ("fill", "void {}(int *, int, int)", "nothing, and sets n numbers of an array to a value"),
    ("gcd", "int {}(int, int)", "the greatest common divisor of two numbers"),
    ("fibonacci", "long {}(int)", "the n-th Fibonacci number"),
    ("is_prime", "int {}(int)", "1 if a number is prime, else 0"),
    ("to_upper", "char {}(char)", "a letter as a capital"),
    ("celsius", "double {}(double)", "degrees Celsius, of degrees Fahrenheit"),
]
GRAMMAR = read_grammar(GRAMMARS / "c.lark")


class CFunction:
    """The task; see the module."""

    name = "c_function"
    instruction = (
        "Write one function in ANSI C, with the name and the type that are asked for. Nothing is included: "
        "call no other function."
    )
    form = "type name(type parameter, ...) { declarations statements }"
    engine = "lr"
    needs: Sequence[str] = (COMPILER,)
    examples: Sequence[tuple[str, str]] = (
        ("int twice(int): returns two times a number.", "int twice(int n) {\n    return 2 * n;\n}"),
        (
            "int is_zero(int): returns 1 if a number is 0, else 0.",
            "int is_zero(int n) {\n    if (n == 0)\n        return 1;\n    return 0;\n}",
        ),
        (
            "void clear(int *, int): returns nothing, and sets n numbers of an array to 0.",
            "void clear(int *x, int n) {\n    int i;\n    for (i = 0; i < n; i++)\n        x[i] = 0;\n}",
        ),
    )
    items: Sequence[Item] = tuple(
        Item(name, f"{type_.format(name)}: returns {does}.", GRAMMAR, (name, type_))
        for name, type_, does in FUNCTIONS
    )

    def check(self, item: Item, answer: str) -> Verdict:
        """Parse a text by the grammar, compile it, and compile it beside a pointer of the type asked for.

        Whether the function computes what it should is not looked at, for that it would have to be run.
        """
        if not takes(GRAMMAR, answer):
            return Verdict()
        if not compiles(answer):
            return Verdict(parses=True)
        name, type_ = item.expected
        pointer = f"\n{type_.format('(*pyquant_wants)')} = {name};\n"
        return Verdict(parses=True, evaluates=True, right=compiles(answer + pointer))


def compiles(text: str) -> bool:
    """Return whether the compiler takes a text. Raises subprocess.TimeoutExpired."""
    command = [COMPILER, "-std=c99", "-fsyntax-only", "-x", "cpp-output"]
    command += ["-Werror=incompatible-pointer-types", "-Werror=implicit-function-declaration", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=SECONDS, check=False)
    return done.returncode == 0


TASK = CFunction()
