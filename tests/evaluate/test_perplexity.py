"""Perplexity beside llama-perplexity's, and beside its definition."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pyquant.cli import app
from pyquant.data import model_path
from pyquant.errors import ConfigError, ModelFileError, TextError
from pyquant.evaluate.perplexity import PerplexityResult, measure_perplexity
from pyquant.files.text import read_text
from pyquant.llama.chunks import cut, forward, make_context
from pyquant.llama.model import Model as LlamaModel
from pyquant.models.model_file import ModelFile
from tests.support.models import Model
from tests.support.oracle import Oracle


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Model(n_embd=64, n_ff=96, seed=4).write(tmp_path_factory.mktemp("model") / "model.gguf")


def stock(oracle: Oracle, model: Path, text: Path, n_ctx: int, n_chunks: int) -> tuple[float, float]:
    """Give what llama-perplexity prints: the value and its error."""
    estimate = r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)"
    arguments = ["-m", model, "-f", text, "-c", n_ctx, "--chunks", n_chunks]
    found = re.search(estimate, oracle.prints(estimate, "llama-perplexity", *arguments))
    return float(found[1]), float(found[2])


def assert_parity(oracle: Oracle, model: Path, text: Path, n_ctx: int, n_chunks: int) -> None:
    result = measure_perplexity(model, text, n_ctx=n_ctx, n_chunks=n_chunks)
    value, error = stock(oracle, model, text, n_ctx, n_chunks)
    assert result.ppl == pytest.approx(value, rel=1e-4)
    assert result.error == pytest.approx(error, rel=1e-4)
    assert result.n_tokens == n_chunks * (n_ctx - 1 - n_ctx // 2)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("n_ctx", "n_chunks"),
    [(64, 40), (129, 7), (256, 9), (512, 4), (2100, 2), (4096, 1)],
    ids=["two batches", "odd", "batch and 1 chunk", "full batch", "longer than batch", "chunk of 2 batches"],
)
def test_llama_perplexity_says_the_same(
    oracle: Oracle, model: Path, text: Path, n_ctx: int, n_chunks: int
) -> None:
    assert_parity(oracle, model, text, n_ctx, n_chunks)


@pytest.mark.oracle
@pytest.mark.parametrize(("n_ctx", "n_chunks"), [(256, 20), (512, 8)])
def test_of_a_trained_model_too(oracle: Oracle, held_out_text: Path, n_ctx: int, n_chunks: int) -> None:
    assert_parity(oracle, model_path(), held_out_text, n_ctx, n_chunks)


@pytest.mark.oracle
def test_of_one_with_sentencepieces_tokenizer(oracle: Oracle, shared: Path) -> None:
    model, text = shared / "models/stories260K-f32.gguf", shared / "data/tinyshakespeare.txt"
    assert_parity(oracle, model, text, n_ctx=128, n_chunks=40)


@pytest.mark.parametrize("n_ctx", [96, 2100])
def test_it_is_what_the_definition_says(model: Path, text: Path, n_ctx: int) -> None:
    n_chunks = 3
    result = measure_perplexity(model, text, n_ctx=n_ctx, n_chunks=n_chunks)
    nll = []
    with LlamaModel(model) as llama, llama.context(n_ctx=n_ctx, n_batch=n_ctx) as context:
        tokens = llama.vocabulary.tokenize(text.read_bytes()[:-1])
        for i in range(n_chunks):
            chunk = tokens[i * n_ctx : (i + 1) * n_ctx]
            context.clear()
            given = np.concatenate([[llama.vocabulary.bos], chunk[1:]])
            logits = context.decode(given[None], 0, np.ones(n_ctx, bool))[0].astype(float)
            log_sum = np.logaddexp.reduce(logits, axis=1)
            scored = np.arange(n_ctx // 2, n_ctx - 1)
            nll.extend(log_sum[scored] - logits[scored, chunk[scored + 1]])
    assert result.ppl == pytest.approx(math.exp(np.mean(nll)), rel=1e-5)
    assert result.error == pytest.approx(
        math.exp(np.mean(nll)) * np.std(nll, ddof=1) / math.sqrt(len(nll)), rel=1e-4
    )
    assert result.n_tokens == len(nll)


def test_pieces_are_views_of_the_scored_half(model: Path, text: Path) -> None:
    with LlamaModel(model) as llama:
        chunks = cut(llama, read_text(text), n_ctx=64, n_chunks=33)
        with make_context(llama, 64) as context:
            for i, piece in enumerate(forward(context, chunks)):
                assert piece.chunk == i
                assert piece.logits.shape == (chunks.n_scored, llama.n_vocab)
                assert not piece.logits.flags.owndata
                assert piece.logits.flags.c_contiguous
                assert piece.targets.tolist() == chunks.tokens[i, 33:].tolist()
    assert i == 32


def test_all_chunks_by_default_with_progress(model: Path, text: Path) -> None:
    calls: list[tuple[int, int]] = []
    result = measure_perplexity(model, text, n_ctx=512, threads=1, progress=lambda *call: calls.append(call))
    assert calls == [(i + 1, result.n_chunks) for i in range(result.n_chunks)]
    assert result.n_chunks == measure_perplexity(model, text, n_ctx=512, n_chunks=10**6).n_chunks
    assert result.tokens_per_second == pytest.approx(result.n_chunks * 512 / result.seconds)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"good \xff bad", "not UTF-8: byte 5 is 0xff"),
        (b"cut \xe2\x82", "not UTF-8: byte 4 is 0xe2"),
        (b"a short one", r"too short: \d+ tokens, a chunk needs 512"),
    ],
)
def test_texts_that_do_not_fit(model: Path, tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    with pytest.raises(TextError, match=rf"text\.txt: {message}"):
        measure_perplexity(model, path)


def test_a_text_that_is_not_there(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"missing\.txt: No such file"):
        measure_perplexity(model, tmp_path / "missing.txt")


@pytest.mark.parametrize(("key", "value", "message"), [("n_ctx", 4, "ctx: "), ("n_chunks", 0, "chunks: ")])
def test_parameters_that_do_not_fit(model: Path, text: Path, key: str, value: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        measure_perplexity(model, text, **{key: value})


def test_a_broken_model_is_named(text: Path, tmp_path: Path) -> None:
    broken = Model(change=lambda name, x: np.where(name == "output.weight", np.float32("nan"), x))
    path = broken.write(tmp_path / "broken.gguf")
    with pytest.raises(ModelFileError, match=r"broken\.gguf: not finite logits in chunk 0"):
        measure_perplexity(path, text, n_ctx=64, n_chunks=2)


def test_the_command(model: Path, text: Path) -> None:
    command = [sys.executable, "-m", "pyquant", "perplexity", model, "--text", text, "--ctx", "64"]
    command += ["--chunks", "4"]
    expected = measure_perplexity(model, text, n_ctx=64, n_chunks=4)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)["results"][0]
    assert result["ppl"] == pytest.approx(expected.ppl)
    assert result["text_sha256"] == expected.text_sha256
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(rf"{model.name} +{expected.ppl:.4f} +{expected.error:.4f} +124 +4 x 64", done.stdout)
    assert done.stderr == ""


def test_what_is_measured_is_printed_where_a_later_model_fails(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, begun = shutil.copy(model, tmp_path / "other.gguf"), list[Path]()

    def measured(file: ModelFile, *arguments: object, **options: object) -> PerplexityResult:
        begun.append(file.path)
        if file.path == tmp_path / "other.gguf":
            raise ModelFileError("other.gguf: broken")
        return measure_perplexity(file, *arguments, **options)

    monkeypatch.setattr("pyquant.evaluate.perplexity.measure_perplexity", measured)
    words = [
        "perplexity",
        str(model),
        str(other),
        "--text",
        str(text),
        "--ctx",
        "64",
        "--chunks",
        "2",
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ModelFileError)
    (result,) = json.loads(done.stdout)["results"]
    assert result["model"] == str(model)
    (tmp_path / "other.gguf").write_bytes(model.read_bytes()[:3000])
    begun.clear()
    assert CliRunner().invoke(app, words).stdout == ""
    assert begun == []
