"""KLD against numpy in double precision, and against llama-perplexity's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import log_softmax, rel_entr

from pyquant import _core
from pyquant.cli.compare_table import verdicts
from pyquant.errors import ConfigError, ModelFileError
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.comparison import BasePerplexity, Comparison, NoiseFloor
from pyquant.evaluate.kld import Scores, kld, mean_and_error, token_kld
from pyquant.evaluate.memory import check_budget, memory_of_comparison
from pyquant.llama.cache_types import CacheTypes
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.models import Model
from tests.support.oracle import Oracle
from tests.twins import kernels as reference

TEXT = "she had a little dog and they went to the park in the afternoon to see the birds\n" * 60

# llama-perplexity stores log-probabilities of the base in 16 bits over a range of at most 16 nats.
QUANTUM = 16 / 65535


@given(
    n_vocab=st.sampled_from([1, 7, 16, 511, 512, 513, 4096]),
    spread=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    distance=st.sampled_from([0.0, 1e-3, 1.0]),
    n_threads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
@example(n_vocab=4096, spread=1e4, distance=1.0, n_threads=1, seed=88859299)
def test_kernel_equals_double_precision(n_vocab, spread, distance, n_threads, seed):
    rng = np.random.default_rng(seed)
    base = (rng.normal(size=(5, n_vocab)) * spread).astype(np.float32)
    logits = (base + rng.normal(size=base.shape) * distance).astype(np.float32)
    targets = rng.integers(0, n_vocab, 5).astype(np.int32)
    nll, kld, same_top, overlap = _core.compare_logits(base, logits, targets, n_threads)
    expected_nll, expected_kld, expected_top, expected_overlap = reference.compare_logits(
        base, logits, targets
    )
    np.testing.assert_allclose(nll, expected_nll, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(kld, expected_kld, rtol=1e-5, atol=1e-6)
    assert (same_top == expected_top).all()
    np.testing.assert_allclose(overlap, expected_overlap, rtol=1e-5)
    p, q = log_softmax(base.astype(float), axis=1), log_softmax(logits.astype(float), axis=1)
    p, q = np.exp(p), np.exp(q)
    assert (p[q == 0] < 1e-300).all()  # where float64 has no number for q: p counts for nothing either
    np.testing.assert_allclose(expected_kld, rel_entr(np.where(q == 0, 0, p), q).sum(axis=1), atol=1e-9)
    apart = np.abs(p - q).sum(axis=1) / 2  # the total variation
    np.testing.assert_allclose(expected_overlap, 1 - apart, atol=1e-9)
    assert (_core.negative_log_likelihood(logits, targets, n_threads) == nll).all()


def test_statistics_equal_their_definitions():
    rng = np.random.default_rng(0)
    n = 1001
    base = Scores(rng.exponential(size=n), np.zeros(n), np.ones(n, bool), np.ones(n))
    model = Scores(
        base.nll + rng.normal(size=n) / 9, rng.exponential(size=n), rng.random(n) < 0.9, rng.random(n)
    )
    found = kld("model.gguf", base, model).to_json()

    def error(values):
        return values.std(ddof=0) / np.sqrt(n - 1)

    def percentiles(values, *at):
        return pytest.approx({name: np.quantile(values, float(name) / 100) for name in at})

    ratio = np.exp(np.mean(model.nll - base.nll))
    ranges = found["kld"].pop("percentile_ranges")
    assert found["perplexity"] == pytest.approx(np.exp(model.nll.mean()))
    assert found["perplexity_error"] == pytest.approx(np.exp(model.nll.mean()) * error(model.nll))
    assert found["log_ratio"] == pytest.approx(np.log(ratio))
    assert found["log_ratio_error"] == pytest.approx(error(model.nll - base.nll))
    assert found["ratio"] == pytest.approx(ratio)
    assert found["ratio_error"] == pytest.approx(ratio * error(model.nll - base.nll))
    own, its = np.exp(model.nll.mean()), np.exp(base.nll.mean())
    assert found["difference"] == pytest.approx(own - its)
    assert found["difference_error"] == pytest.approx(error(own * model.nll - its * base.nll))
    assert found["correlation"] == pytest.approx(np.corrcoef(model.nll, base.nll)[0, 1])
    assert found["kld"] == {
        "mean": pytest.approx(model.kld.mean()),
        "error": pytest.approx(error(model.kld)),
        "min": model.kld.min(),
        "max": model.kld.max(),
        "percentiles": percentiles(model.kld, "0.1", "1", "5", "10", "50", "90", "95", "99", "99.9"),
    }
    assert list(ranges) == list(found["kld"]["percentiles"])
    ends = np.sort(model.kld)[998], model.kld.max()  # .999 less and more .001
    assert ranges["99.9"] == pytest.approx(ends, rel=0.02)
    change = np.exp(-model.nll) - np.exp(-base.nll)
    rms = np.sqrt(np.mean(change**2))
    assert found["probability_change"] == {
        "mean": pytest.approx(change.mean()),
        "error": pytest.approx(error(change)),
        "rms": pytest.approx(rms),
        "rms_error": pytest.approx(error(change**2) / (2 * rms)),
        "min": change.min(),
        "max": change.max(),
        "percentiles": percentiles(change, "0.1", "1", "5", "10", "25", "50", "75", "90", "95", "99", "99.9"),
    }
    share = model.same_top.mean()
    assert found["same_top"] == pytest.approx(
        {"share": share, "error": np.sqrt(share * (1 - share) / (n - 1))}
    )
    assert found["expected_acceptance"] == pytest.approx(
        {"share": model.overlap.mean(), "error": error(model.overlap)}
    )


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_ranges_of_percentiles_hold_the_true_one_as_often_as_an_error_says(percent: int):
    true = -np.log(1 - percent / 100)
    rng = np.random.default_rng(0)
    found = [token_kld(rng.exponential(size=3000)).percentile_ranges[str(percent)] for _ in range(600)]
    assert np.mean([low <= true <= high for low, high in found]) == pytest.approx(0.68, abs=0.06)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_a_model_does_not_differ_from_its_copy(generated: Callable[[str], Path], text: Path, tmp_path: Path):
    base = generated("f16, rows of 256, grouped queries")
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(base.read_bytes())
    rough = tmp_path / "rough.gguf"
    quantize_model(base, rough, make_mode({"mode": "q4_0_multizero", "radius": 3}))
    found = compare_models(base, [copy, ModelFile(rough)], text, n_ctx=64)
    same, other = found.candidates
    assert same.kld.max == 0
    assert same.ratio == 1
    assert same.same_top.share == 1
    assert same.expected_acceptance.share == pytest.approx(1, abs=1e-6)
    assert other.kld.mean > 100 * max(found.noise_floor.kld, 1e-9)
    assert found.base.perplexity == pytest.approx(same.perplexity, rel=1e-12)
    printed = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert printed["candidates"][1]["kld"]["percentiles"]["50"] == other.kld.percentiles["50"]
    assert [candidate["model"] for candidate in printed["candidates"]] == [str(copy), str(rough)]


@pytest.mark.oracle
@pytest.mark.parametrize(("n_ctx", "n_chunks"), [(256, 12), (2304, 2)])  # one is longer than a batch
def test_agrees_with_llama_perplexity(
    oracle: Oracle, shared: Path, tmp_path: Path, n_ctx: int, n_chunks: int
):
    base, text = shared / "models/techdocs-5M-f16.gguf", shared / "data/wiki.test.raw"
    model, logits = tmp_path / "q4_0.gguf", tmp_path / "logits"
    quantize_model(base, model, make_mode({"mode": "q4_0"}))
    run = ["-c", n_ctx, "-t", 2, "--kl-divergence-base", logits]
    oracle.prints("Final estimate", "llama-perplexity", "-m", base, "-f", text, "--chunks", n_chunks, *run)
    told = oracle.prints("Same top p:", "llama-perplexity", "-m", model, "--kl-divergence", *run)
    found = compare_models(base, [model], text, n_ctx=n_ctx, n_chunks=n_chunks).to_json()
    n, (one,) = found["n_tokens"], found["candidates"]

    def line(name: str) -> list[float]:
        match = re.search(rf"^{re.escape(name)} *: *(.*)$", told, re.MULTILINE)
        assert match, told
        return [float(number) for number in re.findall(r"-?[0-9.]+", match[1])]

    printed = 1e-6
    mean_rounding = 4 * QUANTUM / np.sqrt(12 * n)
    assert [one["perplexity"], one["perplexity_error"]] == pytest.approx(line("Mean PPL(Q)"), rel=1e-6)
    assert found["base"]["perplexity"] == pytest.approx(line("Mean PPL(base)")[0], rel=mean_rounding + 1e-6)
    assert one["ratio"] == pytest.approx(line("Mean PPL(Q)/PPL(base)")[0], abs=mean_rounding + printed)
    assert one["difference"] == pytest.approx(
        line("Mean PPL(Q)-PPL(base)")[0], abs=60 * mean_rounding + printed
    )
    assert 100 * one["correlation"] == pytest.approx(line("Cor(ln(PPL(Q)), ln(PPL(base)))")[0], abs=0.01)
    kld = one["kld"]
    assert kld["mean"] == pytest.approx(line("Mean    KLD")[0], abs=mean_rounding + printed)
    assert kld["error"] == pytest.approx(line("Mean    KLD")[1], abs=mean_rounding + printed)
    for name, percentile in {"99.9%   KLD": "99.9", "90.0%   KLD": "90", "Median  KLD": "50"}.items():
        assert kld["percentiles"][percentile] == pytest.approx(line(name)[-1], abs=QUANTUM)
    assert kld["percentiles"]["99"] == pytest.approx(line("99.0%   KLD")[-1], rel=0.02)
    assert kld["percentiles"]["99.9"] == pytest.approx(line("99.9%   KLD")[-1], rel=0.02)
    assert kld["max"] == pytest.approx(line("Maximum KLD")[0], abs=QUANTUM)
    change = one["probability_change"]
    assert 100 * change["mean"] == pytest.approx(line("Mean    Δp")[0], abs=0.001)
    assert 100 * change["rms"] == pytest.approx(line("RMS Δp")[0], abs=0.001)
    assert 100 * change["percentiles"]["1"] == pytest.approx(
        line("1.0%   Δp".rjust(10))[-1], abs=100 * QUANTUM
    )
    # Tokens of the base that 16 bits cannot tell apart change places.
    assert one["same_top"]["share"] == pytest.approx(line("Same top p")[0] / 100, abs=3 / n)


@pytest.mark.ci
def test_a_model_that_is_larger_and_no_better_is_dominated(
    generated: Callable[[str], Path], text: Path, tmp_path: Path
):
    base = generated("f16, rows of 256, grouped queries")
    modes = {
        "coarse": {"mode": "q8_table", "table": "balanced"},  # 16 values in 8.5 bits
        "small": {"mode": "ggml:Q4_K"},
        "smaller": {"mode": "q4_0_multizero", "radius": 3},
        "large": {"mode": "q8_0"},
    }
    models = {name: tmp_path / f"{name}.gguf" for name in modes}
    for name, mode in modes.items():
        quantize_model(base, models[name], make_mode(mode))
    result = compare_models(base, [*models.values()], text, n_ctx=64)
    assert result.sizes == [path.stat().st_size for path in (base, *models.values())]
    n_weights = ModelFile(base).n_weights
    assert result.bits == [8 * size / n_weights for size in result.sizes]
    assert result.dominated_by() == [str(models["large"]), None, None, None]
    printed = result.to_json()
    assert printed["base"]["bits"] == result.bits[0]
    assert [candidate["dominated_by"] for candidate in printed["candidates"]] == result.dominated_by()
    done = run("compare", base, *models.values(), "--text", text, "--ctx", 64)
    said = f"{models['coarse']} is dominated by {models['large']}: larger, and a higher KLD"
    assert [line for line in done.stderr.splitlines() if "dominated" in line] == [said]
    title, _, head, _, *rows = done.stdout.strip().splitlines()
    assert title.startswith(f"{text.name}: {result.n_tokens:,} tokens in {result.n_chunks} chunks of 64, ")
    assert head.split()[:3] == ["model", "size", "bits"]
    assert [row.split()[3] for row in rows[:5]] == [f"{bits:.2f}" for bits in result.bits]
    assert len([row for row in rows if row.startswith("KLD of ")]) == 3


@pytest.mark.parametrize(
    ("errors", "size", "cache", "dominates"),
    [
        (2.1, 99, CacheTypes(), True),
        (1.9, 99, CacheTypes(), False),
        (2.1, 100, CacheTypes(), False),
        (2.1, 99, CacheTypes("q8_0", "q8_0"), False),
    ],
    ids=["smaller and nearer", "hardly nearer", "as large", "another cache"],
)
def test_a_model_is_dominated_by_one_that_is_smaller_and_clearly_nearer(
    errors: float, size: int, cache: CacheTypes, dominates: bool
) -> None:
    noise = np.tile([1.0, -1.0], 50)
    _, error = mean_and_error(noise)
    n, base = len(noise), Scores.of_base(len(noise))
    base.nll[:] = 3
    own, other = (
        Scores(base.nll, level, base.same_top, base.overlap)
        for level in (2 + noise + errors * error, np.full(n, 2.0))
    )
    found = Comparison(
        name="", kind="text", text="", text_sha256="", n_ctx=n, n_chunks=1, n_tokens=n,
        base=BasePerplexity("base", 20.0, 0.1), noise_floor=NoiseFloor(1, 0.0, 0.0, 1.0),
        candidates=[kld("own", base, own), kld("other", base, other)],
        caches=[CacheTypes(), CacheTypes(), cache], paired=[], by_position=[], sizes=[400, 100, size],
        bits=[16.0, 4.0, 4.0], scores=[base, own, other], chunks=np.zeros(n, np.intp),
    )  # fmt: skip
    assert found.dominated_by() == ["other" if dominates else None, None]


def test_a_broken_model_is_said_aloud():
    candidate = {"model": "m.pqz", "dominated_by": None}
    assert list(verdicts([{**candidate, "ratio": 9.9}])) == []
    (said,) = verdicts([{**candidate, "ratio": 12.34}])
    assert said == "m.pqz is of no use: its perplexity is 12.3 times the base's"


def test_a_model_that_rules_a_token_out_is_named() -> None:
    """Its losses may be finite where its KLD is not."""
    scores = Scores.empty(4)
    scores.kld[3] = np.inf
    with pytest.raises(ModelFileError, match=r"m\.gguf: not finite logits in chunk 1: the model is broken"):
        scores.check("m.gguf", 2)


def test_a_perplexity_that_is_no_double_is_refused() -> None:
    scores = Scores.empty(4)
    scores.nll[:] = 700
    scores.check("m.gguf", 2)
    assert np.isfinite(scores.perplexity()).all()
    scores.nll[:] = 701
    with pytest.raises(ModelFileError, match=r"m\.gguf: a perplexity of e to the 701: the model is broken"):
        scores.check("m.gguf", 2)


def test_a_loss_whose_square_is_no_double_is_summed_up() -> None:
    n, nats = 9, np.linspace(0, 1, 9)
    base, model = (Scores(level + nats * spread, np.zeros(n), np.ones(n, bool), np.ones(n))
                   for level, spread in ((2, 1), (400, 3)))  # fmt: skip
    found = kld("m.gguf", base, model).to_json()
    assert found["ratio"] > 1e100
    assert found["difference_error"] == pytest.approx(found["perplexity_error"])
    (said,) = verdicts([{**found, "dominated_by": None}])
    assert said.startswith("m.gguf is of no use: its perplexity is ")


def test_vocabularies_must_agree(generated: Callable[[str], Path], text: Path, tmp_path: Path):
    base = generated("f32, rows of 64 and 96")
    other = Model(n_vocab=330).write(tmp_path / "other.gguf")
    with pytest.raises(ModelFileError, match=r"330 tokens in its vocabulary, .* has 320"):
        compare_models(base, [other], text, n_ctx=64)
    with pytest.raises(ConfigError, match="given twice"):
        compare_models(base, [base], text)


def test_budget_says_the_sizes(generated: Callable[[str], Path]):
    base = generated("f32, rows of 64 and 96")
    needed = memory_of_comparison([base], n_ctx=512).total
    check_budget([base], n_ctx=512, budget=needed)
    with pytest.raises(ConfigError, match=r"budget-memory: .* MB are needed.*of weights .* chunks of 512"):
        check_budget([base], n_ctx=512, budget=needed - 1)


def test_tokens_that_the_base_forbids_add_nothing() -> None:
    base = np.array([[1, 0, -np.inf, -np.inf]], np.float32)
    logits = np.array([[0, 1, -np.inf, 3]], np.float32)
    targets = np.zeros(1, np.int32)
    measured, expected = (each.compare_logits(base, logits, targets, *more) for each, more in (
        (_core, (1,)), (reference, ()),
    ))  # fmt: skip
    np.testing.assert_allclose(measured[1], expected[1], rtol=1e-6)
    assert 0 < expected[1][0] < 10


def test_the_overlap_of_logits_is_what_speculative_sampling_accepts() -> None:
    rng = np.random.default_rng(0)
    target, draft = (rng.normal(size=(1, 4)).astype(np.float32) for _ in range(2))
    p, q = (np.exp(x[0].astype(float)) / np.exp(x[0].astype(float)).sum() for x in (target, draft))
    n = 200_000
    drafted = rng.choice(4, n, p=q)
    accepted = rng.random(n) < np.minimum(1, p[drafted] / q[drafted])
    overlap = reference.compare_logits(target, draft, np.zeros(1, np.int32))[3][0]
    assert accepted.mean() == pytest.approx(overlap, abs=5 * 0.5 / np.sqrt(n))
