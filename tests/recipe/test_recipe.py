"""The recipe's parts; those in torch are tested where torch is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from pyquant.data.stdlib import Document, documents
from recipe.ngram import NGram


def test_ngram_is_kneser_ney() -> None:
    # Computed by hand, for order 2: a b a b a c, discounts D = n1 / (n1 + 2 n2) of each order.
    tokens = np.array([1, 2, 1, 2, 1, 3])
    model = NGram(tokens, order=2, n_vocab=4)
    # Bigrams: 12 twice, 21 twice, 13 once: D2 = 1 / (1 + 4). Continuations 1, 2, 3 one each: D1 = 1.
    continuation = 0 + 1 * 3 / 3 / 4
    expected = [(2 - 0.2) / 3 + 0.2 * 2 / 3 * continuation, (1 - 0.2) / 3 + 0.2 * 2 / 3 * continuation]
    np.testing.assert_allclose(model.probabilities(np.array([1, 2, 1, 3]))[[0, 2]], expected)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_ngram_probabilities_sum_to_one(order: int) -> None:
    tokens = np.random.default_rng(0).zipf(1.5, 3000) % 20
    model = NGram(tokens, order=order, n_vocab=20)
    for history in (tokens[: order - 1], np.full(order - 1, 19)):
        p = [model.probabilities(np.append(history, token))[0] for token in range(20)]
        assert min(p) > 0
        assert sum(p) == pytest.approx(1)


def test_ngram_refuses_what_does_not_fit_into_a_key() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        NGram(np.arange(10), order=6, n_vocab=4096)


def test_documents_do_not_change_from_call_to_call() -> None:
    assert documents(held_out=True) == documents(held_out=True)


def test_windows_cover_the_text_once() -> None:
    train = _torch_module("train")
    cut = train.windows(np.arange(1, 1000, dtype=np.uint16), 32, seed=3)
    assert (cut[:, 0] == 0).all()  # every window begins as a chunk of llama-perplexity does
    targets = np.sort(cut[:, 1:].ravel())
    assert np.array_equal(targets, np.arange(targets[0], targets[0] + len(targets)))
    assert len(targets) > 1000 - 3 * 32


def test_learning_rate_warms_up_and_ends_at_zero() -> None:
    rate = _torch_module("train").rate
    shares = [rate(x) for x in np.linspace(0, 1, 101)]
    assert shares[0] > 0
    assert max(shares) == 1
    assert shares[-1] == 0
    assert rate(1.1) == 0
    assert shares[5:] == sorted(shares[5:], reverse=True)


def test_orthogonalized_has_singular_values_near_one() -> None:
    optimizer = _torch_module("optimizer")
    import torch

    for rows, columns in ((8, 32), (32, 8)):
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
        values = torch.linalg.svdvals(optimizer.orthogonalized(x))
        assert 0.6 < values.min() <= values.max() < 1.3


def test_torch_and_numpy_are_the_same_model(tmp_path: Path) -> None:
    model_of = _torch_module("model")
    import torch

    from recipe.forward import Forward
    from recipe.gguf_file import write
    from recipe.shape import Shape
    from recipe.text import tokenizer_of, train_tokenizer

    shape = Shape(n_vocab=300, n_embd=64, n_layer=2, n_ff=96, n_ctx=32)
    torch.manual_seed(0)
    model = model_of.Llama(shape)
    with torch.no_grad():
        for parameter in model.parameters():  # no zeros, and only what float16 can hold
            parameter.copy_((parameter + torch.randn_like(parameter) / 16).half())
    tokenizer = train_tokenizer([Document("a.py", "def f(x):\n    return x\n" * 50)], 300)
    path = tmp_path / "tiny.gguf"
    write(path, shape, {name: w.numpy() for name, w in model.state_dict().items()}, tokenizer)
    tokens = np.random.default_rng(0).integers(0, shape.n_vocab, 32)
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)[None])[0].numpy()
    np.testing.assert_allclose(Forward(path)(tokens), expected, atol=1e-4)
    assert tokenizer_of(path).encode("def g").ids == tokenizer.encode("def g").ids


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = _torch_module("train")
    import torch

    from recipe.shape import Shape

    monkeypatch.setattr(torch, "compile", lambda function: function)
    text = [Document(f"{i}.py", f"def f{i}(x):\n    return x + {i}\n" * 40) for i in range(20)]
    monkeypatch.setattr(train, "documents", lambda *, held_out: text[:2] if held_out else text[2:])
    shape = Shape(n_vocab=300, n_embd=64, n_layer=1, n_ff=64, n_ctx=32)

    def training() -> train.Training:
        return train.Training(tmp_path, shape, minutes=1, seed=0, threads=1)

    first = training()
    monkeypatch.setattr(first, "log", lambda **_: first.stop() if first.step >= train.LOG_STEPS else None)
    first.run()
    second = training()
    assert second.step == first.step
    assert second.spent == first.spent
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert second.validate() < np.log(300) - 0.2  # better than knowing nothing
    assert not list(tmp_path.glob("*.partial"))


def test_figure_is_drawn(tmp_path: Path) -> None:
    from recipe.figure import draw

    lines = [{"tokens": 10**6 * i, "validation_loss": 8 / (i + 1), "training_loss": 7} for i in range(4)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    draw(tmp_path / "log.jsonl", tmp_path / "loss.svg")
    assert "<svg" in (tmp_path / "loss.svg").read_text()


def _torch_module(name: str) -> object:
    for needed in ("torch", "tokenizers"):
        pytest.importorskip(needed)
    __import__(f"recipe.{name}")
    return sys.modules[f"recipe.{name}"]
