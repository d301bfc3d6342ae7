"""Sources are cut into declarations, and the compiler's errors are laid at the right one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis import c_declarations

OF_STANDARD = """\
#include "h.h"
static char braces[] = "}{;\\"", quote = '\\'';  // a remark
struct pair { int a, b; } pairs[] = {{1, 2}, {3, 4}};
static inline int first(va_list list)
{
    struct pair *p = pairs;
    if (p->a) { return WIDE(p->b); }
    return __builtin_va_arg(list, int);
}
"""
BEYOND = """\
int late(void)
{
    first(0);
    int after_a_statement = 1;
    return after_a_statement;
}
void by_hand(void) { __asm__ volatile("nop"); }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("skipped: no C compiler")
    (tmp_path / "h.h").write_text(
        "#include <stdarg.h>\n#define WIDE(x) ((long)(x))\nextern int of_a_header;\n"
    )
    (tmp_path / "of_standard.c").write_text(OF_STANDARD)
    (tmp_path / "beyond.c").write_text(f'#include "h.h"\nint first(int);\n{BEYOND}')
    (tmp_path / "lost.c").write_text('#include "no_such_header.h"\n')
    return tmp_path


def printed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setattr("sys.argv", ["", str(folder), f"--options=-I{folder}"])
    c_declarations.main()
    captured = capsys.readouterr()
    assert "no_such_header.h" in captured.err
    return captured.out.splitlines()


def test_what_the_compiler_takes_the_grammar_takes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = c_declarations.preprocess(folder / "of_standard.c", [])
    assert text is not None
    found = list(c_declarations.judged(text))
    assert [declaration.split()[1] for declaration, _ in found[-4:]] == ["int", "char", "pair", "int"]
    assert all(correct for _, correct in found[-4:])
    n_all = len(found) + 3
    n_good = n_all - 2
    assert printed(folder, monkeypatch, capsys) == [
        "2 of 3 sources go through the preprocessor",
        f"{n_all} different declarations, {n_good} of the standard by the compiler, 1 of them functions",
        f"{n_good} taken by ansi_c",
    ]


def test_what_the_grammar_refuses_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(c_declarations, "takes", lambda grammar, text: "of_a_header" not in text)
    assert printed(folder, monkeypatch, capsys)[-1] == "extern int of_a_header;"
