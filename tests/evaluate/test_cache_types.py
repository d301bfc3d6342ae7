"""Caches of other types: against llama-perplexity's -ctk and -ctv, and what a KLD comes of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from typer.testing import CliRunner

from pyquant.cli import app
from pyquant.errors import ConfigError, ModelFileError
from pyquant.evaluate.compare import compare_models, compare_texts
from pyquant.files.text import NamedText, read_text
from pyquant.inspect.kld_shares import kld_shares
from pyquant.limits import CACHE_TYPES
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.rounding.dequantize import dequantize_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.models import Model
from tests.support.oracle import Oracle
from tests.support.stock_logits import StockLogits

TEXT = "the hen ate in the rain and then the tin ant ate the tea in the ether again\n" * 60
CHUNKS = {"n_ctx": 64, "n_chunks": 4, "threads": 1}
PAIRS = [("q8_0", "q4_0"), ("q4_0", "f16"), ("iq4_nl", "bf16"), ("f32", "q5_1"), ("q5_0", "q4_1")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose heads have 32 numbers, a block of the cache's types; it in Q4_0; and a text."""
    folder = tmp_path_factory.mktemp("caches")
    model = Model(n_embd=128, n_ff=128, n_head_kv=2, type=Type.F16).write(folder / "model.gguf")
    quantize_model(model, folder / "q4_0.gguf", make_mode({"mode": "q4_0"}))
    (folder / "text.txt").write_text(TEXT)
    return folder


@pytest.mark.oracle
@pytest.mark.parametrize("pair", PAIRS)
def test_a_cache_is_that_of_llama_perplexity(oracle: Oracle, folder: Path, tmp_path: Path, pair) -> None:
    model, text = folder / "model.gguf", folder / "text.txt"
    shared = ["-m", model, "-f", text, "-c", 64, "--chunks", 4, "-t", 1]

    def stock(name: str, *options: str) -> StockLogits:
        oracle.run("llama-perplexity", *shared, "--kl-divergence-base", tmp_path / name, *options)
        return StockLogits.read(tmp_path / name)

    base, cached = stock("base"), stock("cached", "-ctk", pair[0], "-ctv", pair[1])
    (ours,) = compare_models(model, [], text, caches=[CacheTypes(*pair)], **CHUNKS).candidates
    # Stock log-probabilities are in steps of at most 16 / 65535.
    assert ours.perplexity == pytest.approx(cached.perplexity, rel=1e-4)
    assert ours.kld.mean == pytest.approx(base.kld(cached), abs=1e-5)


def test_caches_are_crossed_with_files(folder: Path) -> None:
    base, model, text = (folder / name for name in ("model.gguf", "q4_0.gguf", "text.txt"))
    caches = [CacheTypes("q8_0", "q8_0"), CacheTypes("q4_0", "q4_0")]
    found = compare_models(base, [model], text, caches=caches, **CHUNKS)
    result = found.to_json()["candidates"]
    assert [(one["file"], one["cache_type_k"], one["cache_type_v"]) for one in result] == [
        (str(model), "f16", "f16"),
        (str(base), "q8_0", "q8_0"), (str(model), "q8_0", "q8_0"),
        (str(base), "q4_0", "q4_0"), (str(model), "q4_0", "q4_0"),
    ]  # fmt: skip
    own, base_8, _, base_4, own_4 = (one["kld"]["mean"] for one in result)
    assert 0 < base_8 < base_4 < own_4
    assert own == compare_models(base, [model], text, **CHUNKS).candidates[0].kld.mean
    assert len({one["model"] for one in result}) == 5


def test_long_contexts_take_caches_too(folder: Path) -> None:
    base, text = folder / "model.gguf", read_text(folder / "text.txt")
    options = {**CHUNKS, "caches": [CacheTypes("q8_0", "q4_0")]}
    (kept,) = compare_texts(base, [], [NamedText("text", text)], **options)
    (abreast,) = compare_texts(base, [], [NamedText("text", text)], every_position=True, **options)
    # One chunk after the other, and several together: sums in another order.
    assert abreast.candidates[0].kld.mean == pytest.approx(kept.candidates[0].kld.mean, rel=1e-2)


def test_shares_add_up_and_weights_are_those_of_the_dequantized_file(folder: Path, tmp_path: Path) -> None:
    base, model = folder / "model.gguf", folder / "q4_0.gguf"
    texts = [NamedText("text", read_text(folder / "text.txt"))]
    comparisons = compare_texts(base, [model], texts, caches=[CacheTypes("q8_0", "q4_0")], **CHUNKS)
    ((own,),) = kld_shares(comparisons, base, [model], texts, **CHUNKS)
    assert own.cache is not None
    parts = own.weights.kld, own.activations.kld, own.cache.kld
    assert sum(parts) == pytest.approx(own.total.kld)
    assert own.total.kld == comparisons[0].candidates[-1].kld.mean
    assert own.cache.kld == pytest.approx(own.total.kld - comparisons[0].candidates[0].kld.mean)
    dequantize_model(model, tmp_path / "f16.gguf", "F16")
    (alone,) = compare_texts(base, [tmp_path / "f16.gguf"], texts, **CHUNKS)
    assert own.weights.kld == alone.candidates[0].kld.mean
    ((without,),) = kld_shares(compare_texts(base, [model], texts, **CHUNKS), base, [model], texts, **CHUNKS)
    assert without.cache is None


def test_shares_are_the_same_where_files_fit_one_by_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, models = folder / "model.gguf", [folder / "q4_0.gguf", tmp_path / "q8_0.gguf"]
    quantize_model(base, models[1], make_mode({"mode": "q8_0"}))
    texts = [NamedText("text", read_text(folder / "text.txt"))]
    comparisons = compare_texts(base, models, texts, **CHUNKS)
    # Of 569 kB each.
    (together,) = kld_shares(comparisons, base, models, texts, **CHUNKS)
    assert [own.file for own in together] == list(map(str, models))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    counts: list[tuple[int, int]] = []
    alone = kld_shares(comparisons, base, models, texts, **CHUNKS, progress=lambda *told: counts.append(told))
    assert alone == [together]
    assert counts == sorted(counts)
    assert counts[-1] == (2 * CHUNKS["n_chunks"], 2 * CHUNKS["n_chunks"])


def test_unknown_types_are_refused_with_the_known_ones(folder: Path) -> None:
    for keys, values, letter in (("q3_k", "f16", "k"), ("f16", "Q8_0", "v")):
        with pytest.raises(
            ConfigError, match=rf"cache-type-{letter}: expected one of {', '.join(CACHE_TYPES)}"
        ):
            CacheTypes(keys, values)
    base, text = folder / "model.gguf", folder / "text.txt"
    with pytest.raises(ConfigError, match="types of a cache are given twice"):
        compare_models(base, [], text, caches=[F16_CACHE], **CHUNKS)
    refused = run("compare", base, "--text", text)
    assert refused.returncode == 2
    assert "give a model beside the base, or types of its cache" in refused.stderr


def test_heads_that_are_no_whole_blocks_are_refused_in_a_line(tmp_path: Path, folder: Path) -> None:
    model = Model().write(tmp_path / "narrow.gguf")  # 16 numbers a head
    with pytest.raises(ModelFileError, match="q8_0 with block size 32 does not divide") as refusal:
        compare_models(model, [], folder / "text.txt", caches=[CacheTypes("q8_0", "f16")], **CHUNKS)
    assert "\n" not in str(refusal.value)


def test_bytes_of_a_value() -> None:
    assert CacheTypes("q8_0", "q4_0").bytes_per_value == (34 / 32, 18 / 32)
    assert F16_CACHE.bytes_per_value == (2, 2)


def test_the_command_pairs_types_and_shows_a_table_for_each_cache(folder: Path) -> None:
    arguments = ["model.gguf", "q4_0.gguf", "--text", "text.txt", "--ctx", "64", "--chunks", "2"]
    caches = ["-ctk", "q8_0", "-ctv", "q4_0", "--cache-type-k", "q4_0", "--threads", "1"]
    shown = run("compare", *arguments, *caches, cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert re.findall(r"KV \S+", shown.stdout) == ["KV q8_0/q4_0", "KV q4_0/f16"]
    assert max(map(len, shown.stdout.splitlines())) <= 100
    result = json.loads(run("compare", *arguments, "--shares", "--json", cwd=folder).stdout)
    (own,) = result["shares"]
    assert own["total"]["kld"] == result["candidates"][0]["kld"]["mean"]
    assert np.isfinite(own["weights"]["error"])
    refused = run("compare", *arguments, "-ctk", "q9", cwd=folder)
    assert refused.returncode == 2
    assert refused.stderr.startswith("pyquant: cache-type-k: expected one of f32, f16")


def test_a_comparison_is_printed_where_its_shares_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModelFileError("a weight is too large for F16")

    monkeypatch.setattr("pyquant.inspect.kld_shares.kld_shares", fail)
    files = [str(folder / name) for name in ("model.gguf", "q4_0.gguf", "text.txt")]
    words = ["compare", *files[:2], "--text", files[2], "--ctx", "64", "--chunks", "2", "--shares", "--json"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ModelFileError)
    assert json.loads(done.stdout)["candidates"][0]["kld"]["mean"] > 0
