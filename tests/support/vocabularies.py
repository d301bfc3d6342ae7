"""Vocabularies of other models: llama.cpp's tree has files with nothing else in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyquant.llama.library import bindings
from pyquant.llama.vocabulary import Vocabulary
from tests.support.vendored import llama_files


@contextmanager
def vocabulary(name: str) -> Iterator[Vocabulary]:
    """Load ggml-vocab-NAME.gguf; skip the test where there is none."""
    found = llama_files(f"models/ggml-vocab-{name}.gguf")
    if not found:
        pytest.skip(f"skipped: no ggml-vocab-{name}.gguf in llama.cpp's tree")
    llama = bindings()
    parameters = llama.llama_model_default_params()
    parameters.vocab_only = True
    model = llama.llama_model_load_from_file(str(found[0]).encode(), parameters)
    assert model, found
    try:
        yield Vocabulary(llama, model, found[0])
    finally:
        llama.llama_model_free(model)
