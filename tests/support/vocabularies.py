"""Vocabularies of other models: llama.cpp's tree has files with nothing else in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyquant.llama.library import bindings
from pyquant.llama.vocabulary import Vocabulary
from tests.support import ROOT


@contextmanager
def vocabulary(name: str) -> Iterator[Vocabulary]:
    """Load ggml-vocab-NAME.gguf; skip the test where there is none."""
    path = min(ROOT.glob(f"build/vendor/llama.cpp-*/models/ggml-vocab-{name}.gguf"), default=None)
    if path is None:
        pytest.skip(f"skipped: no ggml-vocab-{name}.gguf in llama.cpp's tree")
    llama = bindings()
    parameters = llama.llama_model_default_params()
    parameters.vocab_only = True
    model = llama.llama_model_load_from_file(str(path).encode(), parameters)
    assert model, path
    try:
        yield Vocabulary(llama, model, path)
    finally:
        llama.llama_model_free(model)
