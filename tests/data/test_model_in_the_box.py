"""The model that comes with pyquant: that it is what its card says, and that it has learned."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from pyquant.data import evaluation_text, model_path, training_text
from pyquant.data.stdlib import documents, is_held_out
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.llama.model import Model
from recipe.forward import Forward
from tests.support import ROOT
from tests.support.oracle import Oracle

CARD = ROOT / "recipe" / "MODEL_CARD.md"
# Sorted from the one that changes the model most to the one that changes it least.
TYPES = ("Q4_0", "IQ4_NL", "Q4_K", "Q5_0", "Q6_K", "Q8_0")


def from_card(pattern: str) -> str:
    found = re.search(pattern, CARD.read_text())
    assert found, f"{CARD.name} does not say: {pattern}"
    return found.group(1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "held_out.txt"
    path.write_text(evaluation_text(), "utf-8", newline="\n")
    return path


def test_file_is_the_one_that_the_card_describes() -> None:
    data = model_path().read_bytes()
    assert len(data) <= 12_000_000
    assert hashlib.sha256(data).hexdigest() == from_card(r"sha256.*`([0-9a-f]{64})`")


def test_every_matrix_takes_every_type() -> None:
    for tensor in GGUFReader(model_path()).tensors:
        if len(tensor.shape) == 2:
            assert tensor.shape[0] % 256 == 0, tensor.name
            assert tensor.tensor_type == GGMLQuantizationType.F16, tensor.name
        else:
            assert tensor.tensor_type == GGMLQuantizationType.F32, tensor.name


def test_no_document_is_on_both_sides() -> None:
    train, held_out = documents(held_out=False), documents(held_out=True)
    assert held_out
    assert not {d.name for d in train} & {d.name for d in held_out}
    assert not {d.text for d in train} & {d.text for d in held_out if len(d.text) > 1000}
    assert 0.01 < sum(len(d.text) for d in held_out) / sum(len(d.text) for d in train) < 0.1


def test_text_to_calibrate_on_is_of_the_training_side(text: Path) -> None:
    seen = training_text(100_000)
    assert len(seen) == 100_000
    assert training_text(200_000).startswith(seen)
    lines = {line for line in seen.splitlines() if len(line) >= 60}
    held_out = set(text.read_text("utf-8").splitlines())
    assert len(lines & held_out) < 0.05 * len(lines)


def test_rule_is_the_one_that_the_model_was_trained_with() -> None:
    # Another rule would evaluate the model on what it was trained on.
    for name in ("ipaddress.py", "ftplib.py", "re/_compiler.py", "asyncio/locks.py"):
        assert is_held_out(name)
    for name in ("turtle.py", "builtins.py", "pydoc_data/topics.py", "asyncio/events.py"):
        assert not is_held_out(name)


def test_module_and_its_part_in_c_stay_together() -> None:
    for module in ("heapq", "hashlib", "datetime", "json"):
        assert is_held_out(f"{module}.py") == is_held_out(f"_{module}.py")


def test_llama_cpp_splits_text_as_the_recipe_did() -> None:
    cases = json.loads((ROOT / "tests" / "data" / "model_in_the_box_tokens.json").read_text("utf-8"))
    with Model(model_path()) as model:
        for case in cases:
            tokens = model.vocabulary.tokenize(case["text"].encode())
            assert tokens.tolist() == [0, *case["tokens"]], case["text"]


def test_llama_cpp_splits_all_text_as_the_recipe_does(text: Path) -> None:
    pytest.importorskip("tokenizers")
    from recipe.text import tokenizer_of

    with Model(model_path()) as model:
        tokens = model.vocabulary.tokenize(text.read_bytes())
    assert tokens.tolist() == [0, *tokenizer_of(model_path()).encode(text.read_text("utf-8")).ids]


def test_logits_are_the_recipes_own(text: Path) -> None:
    with Model(model_path()) as model:
        tokens = model.vocabulary.tokenize(text.read_bytes()[:20_000])[:512]
        with model.context(n_ctx=512) as context:
            logits = context.decode(tokens[None], 0, np.ones(len(tokens), bool))[0].copy()
    expected = Forward(model_path())(tokens)
    # llama.cpp rounds activations to the weights' float16; the logits have a deviation of about 3.
    np.testing.assert_allclose(logits, expected, atol=0.03)
    assert np.abs(logits - expected).mean() < 0.003


@pytest.mark.ci
def test_it_predicts_far_better_than_counting(text: Path) -> None:
    counting = float(from_card(r"5-gram[^|]*\|\s*([0-9.]+)"))
    result = measure_perplexity(model_path(), text, n_ctx=512, n_chunks=40)
    assert result.ppl < counting / 2


@pytest.mark.slow
@pytest.mark.oracle
def test_quantization_types_come_out_in_order(oracle: Oracle, text: Path, tmp_path: Path) -> None:
    models = [oracle.quantize(model_path(), tmp_path / f"{kind}.gguf", kind, "--pure") for kind in TYPES]
    found = compare_models(model_path(), models, text, n_ctx=512, n_chunks=60).to_json()
    means, errors = np.array([[one["kld"][key] for one in found["candidates"]] for key in ("mean", "error")])
    noise = np.hypot(errors[1:], errors[:-1])
    assert (means[:-1] - means[1:] > 2 * noise).all(), dict(zip(TYPES, zip(means, errors)))
