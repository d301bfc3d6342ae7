"""Code and prose of Python's standard library, document by document: texts that need no file."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from pyquant.data.stdlib import Document, documents


def code(*, held_out: bool = False) -> Iterator[str]:
    """Yield the sources of modules.

    held_out: those that the bundled model was not trained on, instead of the others.
    """
    for document in documents(held_out=held_out):
        if _parse(document) is not None:
            yield document.text


def prose(*, held_out: bool = False) -> Iterator[str]:
    """Yield what modules say of themselves in docstrings, and the topics of `help()`.

    held_out: as for `code`.
    """
    for document in documents(held_out=held_out):
        tree = _parse(document)
        text = document.text if tree is None else "\n\n".join(_docstrings(tree))
        if text:
            yield text


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _parse(document: Document) -> ast.Module | None:
    """None for what is no module: topics, and what `help()` says of modules without a source."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a module's escapes deserve
            return ast.parse(document.text)
    except (SyntaxError, ValueError):
        return None
