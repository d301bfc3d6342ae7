"""`pyquant quantize IN OUT TYPE`: rtn is llama-quantize's, stages are kept where they help."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from pyquant import make_mode, quantize_model
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ModelFileError, NotEnoughMemory, OutputError
from pyquant.files.text import make_text
from pyquant.fit.method import stages as stages_module
from pyquant.fit.method.held_out import HeldOut, HeldOutKld
from pyquant.fit.method.quantize import quantize
from pyquant.fit.method.split_text import split_text
from pyquant.fit.mixtures import WantedSize
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.rounding import collecting
from tests.support.command import run
from tests.support.methods import NAME, STAGES, made
from tests.support.models import EXPERTS, with_too_large_inputs
from tests.support.models import Model as Generated
from tests.support.other_models import bert, dream


def test_rtn_is_the_mode_s_file(source: Path, stats_of: Callable[[str], Path], tmp_path: Path) -> None:
    imatrix = stats_of(NAME).with_name("imatrix.gguf")
    for options in ({}, {"imatrix": imatrix}, {"pure": True}):
        quantize(source, tmp_path / "type.gguf", "Q4_K_M", force=True, **options)
        quantize_model(
            source, tmp_path / "mode.gguf", make_mode({"mode": "ggml:Q4_K_M", **options}), force=True
        )
        assert (tmp_path / "type.gguf").read_bytes() == (tmp_path / "mode.gguf").read_bytes()


def test_imatrix_is_llama_quantize_s_file_with_one_of_all_chunks(
    source: Path, short: Path, tmp_path: Path
) -> None:
    done = quantize(
        source, tmp_path / "method.gguf", "Q4_0", method="imatrix", text=short, n_ctx=16, n_chunks=40
    )
    assert [(stage.name, stage.kept) for stage in done.stages] == [("imatrix", True)]
    assert ModelFile(tmp_path / "method.gguf").get("quantize.imatrix.chunks_count") == 40
    quantize(source, tmp_path / "file.gguf", "Q4_0", imatrix=done.statistics)
    assert (tmp_path / "method.gguf").read_bytes() == (tmp_path / "file.gguf").read_bytes()


def test_a_file_names_statistics_by_their_place_in_the_cache(
    source: Path, short: Path, tmp_path: Path
) -> None:
    done = made(source, tmp_path / "out.gguf", short, method="imatrix")
    named = ModelFile(tmp_path / "out.gguf").get("quantize.imatrix.file")
    assert named == f"hessian/{Path(done.statistics).name}"


@pytest.mark.parametrize("write", [dream, bert], ids=lambda write: write.__name__)
def test_best_of_a_model_that_is_no_decoder_is_rtn(
    write: Callable[[Path], Path], short: Path, tmp_path: Path
) -> None:
    model, told = write(tmp_path / "model.gguf"), list[str]()
    done = quantize(model, tmp_path / "best.gguf", "Q8_0", method="best", text=short, tell=told.append)
    quantize(model, tmp_path / "rtn.gguf", "Q8_0")
    assert done.method == "rtn"
    assert any(re.match(r"rounded to nearest, .* is an? (diffusion|encoder)", line) for line in told)
    assert (tmp_path / "best.gguf").read_bytes() == (tmp_path / "rtn.gguf").read_bytes()


def test_the_output_is_the_stage_of_the_least_kld(source: Path, short: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.gguf"
    done = made(source, output, short)
    assert [stage.name for stage in done.stages] == STAGES
    least = min(stage.kld.mean for stage in done.stages if stage.kld)
    with Model(source) as model:
        held = split_text(model, [make_text(short, short.read_bytes())], 64, 16).held_out
    with HeldOut(source, held, None) as held_out:
        assert held_out.kld(output).mean == pytest.approx(least, rel=1e-6)
    assert done.result["output_bytes"] == output.stat().st_size
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("method", ["gptq", "best"])
def test_scales_are_trained_with_a_high_effort(
    source: Path, short: Path, tmp_path: Path, method: str
) -> None:
    done = made(source, tmp_path / "out.gguf", short, method, effort="high")
    *_, before, trained = done.stages
    assert trained.name == done.forecast.stages[-1] == "trained scales"
    assert trained.kept
    assert trained.kld.mean < before.kld.mean
    assert ModelFile(tmp_path / "out.gguf").get("pyquant.method").endswith("trained scales")
    assert Path(done.result["output"]) == tmp_path / "out.gguf"
    assert done.result["output_bytes"] == (tmp_path / "out.gguf").stat().st_size


def test_scales_stay_where_gradients_are_not_known(
    generated: Callable[[str], Path], short: Path, tmp_path: Path
) -> None:
    done = made(generated(EXPERTS), tmp_path / "out.gguf", short, "gptq", effort="high")
    assert not done.stages[-1].kept
    assert "known for architectures" in done.stages[-1].why


def test_what_does_not_help_is_undone(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    klds = iter([0.1, 0.2, 0.3, 0.4, 0.5])
    monkeypatch.setattr(HeldOut, "kld", lambda *_: HeldOutKld((next(klds),)))
    done = made(source, tmp_path / "out.gguf", short)
    assert [stage.kept for stage in done.stages] == [True, False, False, False, False]
    mode = make_mode({"mode": "ggml:Q4_0", "imatrix": done.statistics})
    quantize_model(source, tmp_path / "imatrix.gguf", mode)
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "imatrix.gguf").read_bytes()


def test_what_is_of_gptq_is_left_out_where_that_is(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    klds = iter([(0.1, 0.1), (0.2, 0.2)])
    monkeypatch.setattr(HeldOut, "kld", lambda *_: HeldOutKld(next(klds)))
    done = made(source, tmp_path / "out.gguf", short)
    assert [stage.why for stage in done.stages[2:]] == ["it is of GPTQ, which raises the KLD"] * 3


@pytest.mark.ci
def test_shards_hold_what_the_file_holds(source: Path, short: Path, tmp_path: Path) -> None:
    whole = made(source, tmp_path / "whole.gguf", short)
    begun: list[str] = []

    def stop(what: str, done: int, total: int) -> None:
        begun.append(what)
        if what == "error propagation":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(source, tmp_path / "split.gguf", short, split=30_000, progress=stop)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["whole.gguf"]
    begun.clear()
    split = made(
        source, tmp_path / "split.gguf", short, split=30_000, progress=lambda what, *_: begun.append(what)
    )
    assert "GPTQ" not in begun  # it goes on from the shards of the stages before
    files = split.result["files"]
    assert len(files) > 2
    assert sorted(map(Path, files)) == sorted(tmp_path.glob("split-*"))
    tensors = [
        {t.name: t.data() for t in ModelFile(path).tensors} for path in (files[0], tmp_path / "whole.gguf")
    ]
    assert tensors[0] == tensors[1]
    assert [stage.kept for stage in split.stages] == [stage.kept for stage in whole.stages]
    with pytest.raises(OutputError, match=r"split-00001-of-0000\d.gguf: exists; --force"):
        made(source, tmp_path / "split.gguf", short, split=30_000)


@pytest.mark.parametrize(
    ("klds", "kept"),
    [
        ([(3, 9), (2, 8), (2.1, 7.95), (1, 6), (1, 5)], "yes yes yes yes yes"),  # worse by .025, within .075
        ([(3, 9), (2, 8), (2.1, 8.1), (1, 6), (1, 5)], "yes yes no yes yes"),  # worse on both
        ([(3, 9), (2, 8), (2.1, 7.95), (2.2, 8.1), (2.1, 8)], "yes yes no no no"),  # within it, and no gain
    ],
)
def test_a_stage_is_built_on_unless_it_is_worse_by_more_than_its_error(
    klds: list[tuple[float, float]],
    kept: str,
    source: Path,
    short: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = map(HeldOutKld, klds)
    monkeypatch.setattr(HeldOut, "kld", lambda *_: next(measured))
    done = made(source, tmp_path / "out.gguf", short)
    assert [stage.kept for stage in done.stages] == [word == "yes" for word in kept.split()]
    settings = {"mode": "ggml:Q4_0", "hessian": done.statistics}
    if done.stages[-1].kept:
        settings |= {"equalize": True, "error_propagation": 100, "output_side": done.stages[2].kept}
    else:
        settings |= {"output_side": False}
    quantize_model(source, tmp_path / "mode.gguf", make_mode(settings))
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "mode.gguf").read_bytes()


def test_what_is_trained_is_the_best_stage_s(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = map(HeldOutKld, [(3, 9), (2, 8), (2.1, 7.95), (2.2, 8.1), (2.1, 8), (1, 5)])
    monkeypatch.setattr(HeldOut, "kld", lambda *_: next(measured))
    done = made(source, tmp_path / "out.gguf", short, effort="high")
    assert [stage.name for stage in done.stages if stage.kept] == ["imatrix", "GPTQ", "trained scales"]
    assert ModelFile(tmp_path / "out.gguf").get("pyquant.method") == "GPTQ, trained scales"
    assert {tensor["rmse"] for tensor in done.result["tensors"]} == {done.result["snr_db"]} == {None}


def test_what_does_not_apply_is_left_out(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: object, path: Path, mode: object, **options: object) -> object:
        if mode.equalize:  # type: ignore[attr-defined]
            raise ModelFileError("a family of its own")
        return quantize_model(model, path, mode, **options)

    monkeypatch.setattr(stages_module, "quantize_model", refuse)
    done = made(source, tmp_path / "out.gguf", short)
    by_name = {stage.name: stage for stage in done.stages}
    assert by_name["cross-layer equalization"].why == "a family of its own"
    assert by_name["error propagation"].why is None


def test_a_later_stage_of_no_use_is_left_out(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kld(self: HeldOut, path: Path) -> HeldOutKld:
        if path.stem == "GPTQ":
            raise ModelFileError("logits are no numbers")
        return measured(self, path)

    measured = HeldOut.kld
    monkeypatch.setattr(HeldOut, "kld", kld)
    done = made(source, tmp_path / "out.gguf", short, method="gptq")
    assert [(stage.kept, stage.why) for stage in done.stages] == [
        (True, None),
        (False, "logits are no numbers"),
    ]


@pytest.mark.ci
def test_gradients_of_another_graph_are_left_out(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that scales its rotations has such a graph."""
    monkeypatch.setattr("pyquant.calibration.gradients.output_hessians.SAME", 0)
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))
    for _ in range(2):  # statistics are in the cache then
        told: list[str] = []
        done = made(source, tmp_path / "out.gguf", short, force=True, tell=told.append)
        assert "output-side Hessian" not in [stage.name for stage in done.stages]
        (said,) = (line for line in told if line.startswith("output-side Hessian: left out: "))
        assert "computes something else than the graph of llama" in said


def test_activations_whose_squares_are_too_large_end_in_plain_rounding(short: Path, tmp_path: Path) -> None:
    def huge(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.float32(1e21) * x if name == "blk.1.ffn_norm.weight" else x

    source, told = Generated(change=huge).write(tmp_path / "huge.gguf"), list[str]()
    done = made(source, tmp_path / "gptq.gguf", short, "gptq", tell=told.append)
    assert done.method == "rtn"
    assert re.match(
        r"rounded to nearest, .*: .*huge.gguf: what enters blk.1.ffn_gate.weight is not finite, or too large",
        told[-1],
    )
    quantize(source, tmp_path / "rtn.gguf", "Q4_0")
    assert (tmp_path / "gptq.gguf").read_bytes() == (tmp_path / "rtn.gguf").read_bytes()


@pytest.mark.parametrize("method", ["gptq", pytest.param("best", marks=pytest.mark.ci)])
def test_activations_whose_squares_are_too_large_leave_out_their_matrices(
    short: Path, tmp_path: Path, method: str
) -> None:
    # Q4_K has its activations in Q8_K, whose scales are float32.
    model, told = Generated(n_embd=256, n_ff=256, change=with_too_large_inputs), list[str]()
    source = model.write(tmp_path / "huge.gguf")
    done = quantize(
        source, tmp_path / "out.gguf", "Q4_K_S", method=method, text=short, n_ctx=64, tell=told.append
    )
    too_large = "what enters is not finite, or too large: rounded as without an imatrix"
    assert f"blk.1.ffn_gate.weight and 1 more: {too_large}" in told
    reasons = {tensor["name"]: tensor["without_gptq"] for tensor in done.result["tensors"]}
    for name in ("blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"):
        assert reasons[name] == "what enters it is not finite, or too large"
    assert reasons["blk.1.ffn_down.weight"] is None
    assert done.stages[1].kept
    quantize(source, tmp_path / "rtn.gguf", "Q4_K_S")
    ours, plain = (
        {tensor.name: tensor.data() for tensor in ModelFile(tmp_path / name).tensors}
        for name in ("out.gguf", "rtn.gguf")
    )
    assert ours["blk.1.ffn_down.weight"] != plain["blk.1.ffn_down.weight"]
    if method == "gptq":  # equalization scales rows
        assert ours["blk.1.ffn_gate.weight"] == plain["blk.1.ffn_gate.weight"]


@pytest.mark.ci
def test_hessians_that_take_much_are_collected_layer_by_layer(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(source, tmp_path / "whole.gguf", short)
    assert whole.forecast is not None
    assert whole.forecast.keeps_hessians
    monkeypatch.setattr("pyquant.fit.method.expected_work.MOST_BYTES", whole.forecast.hessian - 1)
    told: list[str] = []
    done = made(source, tmp_path / "out.gguf", short, tell=told.append)
    assert [stage.name for stage in done.stages] == [
        STAGES[0],
        f"GPTQ, {STAGES[2]}, {STAGES[-1]}, {STAGES[-2]}",
    ]
    assert done.forecast is not None
    assert done.forecast.stages == [stage.name for stage in done.stages]
    assert done.statistics is not None
    assert Path(done.statistics).stat().st_size < done.forecast.hessian + 20_000  # tokens and names
    assert any(line.startswith("error propagation: about ") for line in told)
    klds = [{stage.name: stage.kld.mean for stage in of.stages if stage.kld} for of in (whole, done)]
    assert klds[0]["imatrix"] == pytest.approx(klds[1]["imatrix"], rel=1e-6)
    assert klds[1][done.stages[1].name] == pytest.approx(min(klds[0].values()), rel=0.3)  # of fewer tokens
    seen: list[str] = []

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith("GPTQ") and done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(source, tmp_path / "again.gguf", short, progress=stop)
    made(source, tmp_path / "again.gguf", short, progress=lambda what, done, total: seen.append(what))
    assert "imatrix" not in seen
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "out.gguf").read_bytes()


def test_too_few_tokens_cost_error_propagation_alone(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyquant.fit.method.expected_work.MOST_BYTES", 0)
    told: list[str] = []
    done = made(source, tmp_path / "out.gguf", short, n_chunks=4, tell=told.append)
    together = f"GPTQ, {STAGES[2]}, {STAGES[3]}"
    assert [(stage.name, stage.why) for stage in done.stages] == [(STAGES[0], None), (together, None)]
    assert done.forecast is not None
    assert done.forecast.stages == [stage.name for stage in done.stages]
    assert "error propagation: left out, as it takes 512 tokens or more" in told  # 8 for each of 64 columns


def test_memory_that_others_took_ends_the_run_and_leaves_its_stages(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without GPTQ in its place would hide it."""
    monkeypatch.setattr("pyquant.fit.method.expected_work.MOST_BYTES", 0)
    with monkeypatch.context() as less:
        less.setattr("pyquant.rounding.staged_memory.available_memory", lambda: 10_000)
        with pytest.raises(NotEnoughMemory, match="error propagation: about"):
            made(source, tmp_path / "out.gguf", short)
    assert not (tmp_path / "out.gguf").exists()
    seen: list[str] = []
    done = made(source, tmp_path / "out.gguf", short, progress=lambda what, done, total: seen.append(what))
    assert "imatrix" not in seen
    assert [stage.why for stage in done.stages] == [None, None]


@pytest.mark.parametrize("method", ["gptq", "best"])
def test_tokens_whose_activations_are_too_large_are_passed_over(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("pyquant.fit.method.expected_work.MOST_BYTES", 0)
    done = made(source, tmp_path / "out.gguf", short, method)
    kept = Calibration.read(done.statistics).kept
    of_texts, random = (kept.tokens()[of].ravel() for of in (kept.texts() >= 0, kept.texts() < 0))
    token = np.setdiff1d(random, of_texts)[0]

    def one_channel(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Leave channel 0 to one token, of which ffn_down of layer 0 then gets 1e13."""
        x = x.copy()
        if name == "token_embd.weight":
            x[:, 0] = 0
            x[token, 0] = 100
        elif name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight"):
            x[0] = 0
        if name in ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"):
            x[0, 0] = 4e3
        elif name == "blk.0.ffn_norm.weight":
            x[0] = 100
        elif name == "blk.0.ffn_down.weight":
            x[:, 0] = 0
        return x

    told: list[str] = []
    model = Generated(change=one_channel).write(tmp_path / "model.gguf")
    done = made(model, tmp_path / "out.gguf", short, method, force=True, tell=told.append)
    passed_over = "what enters is not finite, or too large, of some tokens: they are passed over"
    assert f"blk.0.ffn_down.weight: {passed_over}" in told
    assert [stage.why for stage in done.stages] == [None, None]


@pytest.mark.ci
def test_a_mix_collects_hessians_for_its_result_alone(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyquant.fit.method.expected_work.MOST_BYTES", 0)
    passes = Mock(wraps=collecting.write_collected)
    monkeypatch.setattr(collecting, "write_collected", passes)
    options = {"method": "gptq", "text": short, "n_ctx": 64, "n_chunks": 16}
    done = quantize(source, tmp_path / "out.gguf", WantedSize(target_bpw=8), **options)
    assert done.result["mode"] == "recipe"
    assert done.result["bits_per_weight"] <= 8
    assert [stage.why for stage in done.stages] == [None, None]
    assert passes.call_count == 1


@pytest.mark.ci
def test_a_mix_does_not_depend_on_what_else_is_in_the_cache(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"text": short, "n_ctx": 64, "n_chunks": 16}
    of_methods: list[str | None] = []
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "both"))
    for method in ("best", "gptq"):
        output = tmp_path / f"{method}.gguf"
        done = quantize(source, output, WantedSize(target_bpw=8), method=method, **options)
        of_methods.append(done.statistics)
    assert of_methods[0] != of_methods[1]
    types = [tensor["type"] for tensor in done.result["tensors"]]
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "alone"))
    alone = quantize(source, tmp_path / "alone.gguf", WantedSize(target_bpw=8), method="gptq", **options)
    assert types == [tensor["type"] for tensor in alone.result["tensors"]]


@pytest.mark.ci
def test_what_a_mix_was_chosen_by_is_said(source: Path, short: Path, tmp_path: Path) -> None:
    said = run(
        "quantize", source, tmp_path / "out.gguf", "--like", "Q5_0", "--method", "gptq", "--text", short,
        "--ctx", 64, "--calibration-chunks", 16,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert re.search(r"^ *type +tensors +of KLD +interleaved here *$", said.stdout, re.MULTILINE)
    assert re.search(r"^round 1 +[\d.]+ kB, KLD \.?[\d.]+ \+/- [\d.]+$", said.stdout, re.MULTILINE)


def test_memory_is_of_error_propagation(source: Path, short: Path, tmp_path: Path) -> None:
    made(source, tmp_path / "all.gguf", short)
    done = made(source, tmp_path / "some.gguf", short, memory=1 << 20)
    assert [stage.why for stage in done.stages] == [None] * 5
    assert (tmp_path / "all.gguf").read_bytes() == (tmp_path / "some.gguf").read_bytes()
