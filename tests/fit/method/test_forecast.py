"""What methods say before their work."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pyquant import data
from pyquant.calibration.calibrate import GRADIENTS, RUNNING, calibrate_model
from pyquant.calibration.sample import MOST_CHUNKS
from pyquant.data import training_text
from pyquant.evaluate.kept_logits import bytes_in_memory
from pyquant.fit.evaluation import Evaluation
from pyquant.fit.method.expected_room import PROCESS, memory_of
from pyquant.fit.method.expected_time import (
    FACTORS,
    FEEDBACK,
    GGML,
    MAKING,
    SEARCH,
    parts_of,
    quantizing,
    rounding,
)
from pyquant.fit.method.expected_work import Entered, Work
from pyquant.fit.method.forecast import Forecast
from pyquant.fit.method.probe import probe
from pyquant.fit.method.quantize import quantize
from pyquant.fit.method.quantized import Quantized
from pyquant.fit.method.request import EVALUATION
from pyquant.fit.method.split_text import N_CHUNKS, SplitText, chunks_for
from pyquant.fit.mixtures import WantedSize
from pyquant.llama.chunks import Chunks
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from tests.support.command import ENVIRONMENT
from tests.support.models import EXPERTS, F32

PEAK = """
import sys
from pyquant.__main__ import main
from pyquant.machine.memory import peak_memory
try:
    main()
finally:
    print("PEAK", peak_memory(), file=sys.stderr, flush=True)
"""


EXPECTED = Forecast(
    stages=["imatrix", "GPTQ"], parts=[("imatrix", 100.0), ("GPTQ", 500.0)], memory=1_234_567_890,
    hessian=2_000_000_000, making=5_000_000_000, beside=30_000_000, temporary=500_000_000,
    all_hessians=3_456_000_000, keeps_hessians=False, lacks_tokens=0, output_side=["attn_k", "attn_v"],
    columns=1536, tokens_per_column=3.5,
)  # fmt: skip


def work_of(source: Path, method: str = "gptq", threads: int = 1) -> Work:
    """Ten chunks of 64 tokens to calibrate on, ten to be evaluated on, a pass over each in 3 seconds."""
    model = ModelFile(source)
    return Work(
        model, method, SplitText([], 10, Chunks(np.zeros((2, 64), np.int32)), ""), output_bytes=model.n_bytes,
        probed=replace(probe(model, 64, 1, n_written=0), chunk_seconds=3.0), in_file=False, given=None,
        mixed=False, high_effort=False, n_evaluated=640, memory=None, threads=threads,
    )  # fmt: skip


def planned(source: Path, tmp_path: Path, text: Path, **given: object) -> tuple[Quantized, list[str]]:
    told: list[str] = []
    done = quantize(
        source, tmp_path / "out.gguf", "Q4_0", text=text, hessian=tmp_path / "hessian.gguf", n_ctx=64,
        n_chunks=16, tell=told.append, **given,
    )  # fmt: skip
    return done, told


@pytest.mark.parametrize("method", ["gptq", "best"])
def test_sizes_are_said_before_work(generated, text: Path, tmp_path: Path, method: str) -> None:
    expected, told = planned(generated(F32), tmp_path, text, method=method, dry_run=True)
    assert not list(tmp_path.iterdir())
    assert [line.partition(":")[0] for line in told[:4]] == ["stages", "time", "memory", "disk"]
    done, told_again = planned(generated(F32), tmp_path, text, method=method)
    assert [stage.name for stage in done.stages] == expected.forecast.stages
    assert [line.partition(":")[0] for line in told_again[:4]] == ["stages", "time", "memory", "disk"]
    size = (tmp_path / "hessian.gguf").stat().st_size
    assert expected.forecast.hessian == pytest.approx(
        size, rel=0.25
    )  # headers and kept tokens are not counted
    assert expected.forecast.seconds == sum(seconds for _, seconds in expected.forecast.parts) > 0
    assert done.to_json()["forecast"]["hessian"] == expected.forecast.hessian


@pytest.mark.parametrize(
    ("method", "wanted", "evaluates"),
    [
        ("imatrix", "Q4_0", True),
        ("gptq", "Q4_0", True),
        ("best", "Q4_0", False),
        pytest.param("best", WantedSize(target_bpw=8), False, marks=pytest.mark.ci),
    ],
)
def test_parts_come_as_they_are_expected(
    source: Path,
    short: Path,
    tmp_path: Path,
    method: str,
    wanted: str | WantedSize,
    evaluates: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))  # has no statistics yet
    expected: list[tuple[str, float]] = []
    seen: list[str] = []
    quantize(
        source, tmp_path / "out.gguf", wanted, method=method, text=short, n_ctx=64, n_chunks=16,
        evaluate=Evaluation(short, 64, 2) if evaluates else None,
        expect=expected.extend, progress=lambda what, done, total: seen.append(what),
    )  # fmt: skip
    came = [what for what, _ in groupby(seen, lambda what: what.partition(": ")[0])]
    assert came == [name for name, _ in expected]
    assert all(seconds > 0 for _, seconds in expected)


def test_what_a_family_has_not_is_no_stage(generated, text: Path, tmp_path: Path) -> None:
    expected, _ = planned(generated(EXPERTS), tmp_path, text, method="best", dry_run=True)
    assert "output-side Hessian" not in expected.forecast.stages


def test_a_mix_of_types_is_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One for both: a busy machine's two probes differ by more than the mix.
    probed = replace(probe(ModelFile(data.model_path()), 512, None, n_written=10), chunk_seconds=1.0)
    monkeypatch.setattr("pyquant.fit.method.quantize.probe", lambda *_, **__: probed)
    options = {"method": "gptq", "n_chunks": 16, "dry_run": True}
    typed, sized = (
        quantize(data.model_path(), tmp_path / "out.gguf", wanted, **options).forecast
        for wanted in ("Q4_K_M", WantedSize(target_bpw=5.0))
    )
    assert sized.stages == ["mix of types", *typed.stages]
    assert sized.seconds > 1.5 * typed.seconds
    assert sized.beside == pytest.approx(typed.beside, rel=0.1)  # two stages' files
    assert typed.temporary == 0
    assert sized.temporary == pytest.approx(1.5 * sized.beside, rel=0.1)  # three files are tried


@pytest.mark.slow
def test_memory_said_is_what_comes(tmp_path: Path) -> None:
    """The bundled model: 8 chunks take .3 GB, 128 take .7."""
    seen = tmp_path / "seen.txt"
    seen.write_text(training_text())
    words = [
        "quantize", data.model_path(), tmp_path / "out.gguf", "Q4_0", "--method", "best", "--text", seen,
        "--calibration-chunks", "8", "--threads", "1", "--json",
    ]  # fmt: skip
    command = [sys.executable, "-c", PEAK, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["forecast"]["memory"]
    came = int(done.stderr.rpartition("PEAK")[2]) - data.model_path().stat().st_size
    assert said / 2 < came < 1.1 * said


def test_nothing_is_expected_of_rtn(generated, tmp_path: Path) -> None:
    done = quantize(generated(F32), tmp_path / "out.gguf", "Q4_0")
    assert done.forecast is None


def test_few_tokens_for_wide_matrices_are_said(generated, text: Path, tmp_path: Path) -> None:
    expected, told = planned(generated(F32), tmp_path, text, method="gptq", dry_run=True)
    (said,) = (line for line in told if line.startswith("calibration:"))
    n_tokens = 64 * 16
    assert expected.forecast.tokens_per_column == n_tokens / expected.forecast.columns < 20
    assert f" {n_tokens / expected.forecast.columns:.1f} tokens for each of" in said


def test_wide_matrices_get_more_chunks(generated) -> None:
    assert chunks_for(ModelFile(generated(F32)), n_ctx=64) == N_CHUNKS
    (wide,) = (t for t in ModelFile(generated(F32)).tensors if t.name == "blk.0.ffn_down.weight")
    for n_in, n_chunks in ((8192, 128), (8960, 140), (14336, 224), (65536, MOST_CHUNKS)):
        model = SimpleNamespace(tensors=[replace(wide, shape=(n_in, 1))])
        assert chunks_for(model, n_ctx=512) == n_chunks


def test_statistics_that_are_there_are_not_made(generated, text: Path, tmp_path: Path) -> None:
    before, _ = planned(generated(F32), tmp_path, text, method="best")
    expected, told = planned(generated(F32), tmp_path, text, method="best", dry_run=True)
    assert expected.forecast.stages == before.forecast.stages
    assert expected.forecast.hessian == 0
    assert [part for part, _ in expected.forecast.parts] == [
        part for part, _ in before.forecast.parts if part not in (RUNNING, GRADIENTS)
    ]
    assert expected.forecast.keeps_hessians
    calibrate_model(
        generated(F32),
        [text],
        tmp_path / "hessian.gguf",
        n_ctx=64,
        n_chunks=16,
        imatrix_only=True,
        force=True,
    )
    diagonals, told = planned(generated(F32), tmp_path, text, method="best", dry_run=True)
    assert not diagonals.forecast.keeps_hessians
    assert "--hessian has diagonals alone: Hessians are collected layer by layer" in told
    assert diagonals.forecast.stages == ["imatrix", "GPTQ, error propagation, cross-layer equalization"]


def test_logits_that_do_not_stay_in_memory_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = data.model_path()
    options = {"method": "gptq", "n_chunks": 8, "dry_run": True}
    kept = quantize(source, tmp_path / "out.gguf", "Q4_0", **options).forecast
    monkeypatch.setattr("pyquant.evaluate.kept_logits.bytes_in_memory", lambda *_: 1 << 20)
    spilled = quantize(source, tmp_path / "out.gguf", "Q4_0", **options).forecast
    n_vocab = next(
        tensor.n_rows for tensor in ModelFile(source).tensors if tensor.name == "token_embd.weight"
    )
    assert spilled.temporary - kept.temporary == 4 * n_vocab * 8 * 255


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {},
            [
                "stages: imatrix, GPTQ; those of the least KLD on held-out chunks are kept",
                "time: about 10 min, less what the cache has already",
                "memory: about 1.23 GB, the mapped model not counted",
                "disk: 2.00 GB of Hessian statistics, 5.00 GB while they are made, "
                "0.03 GB beside the output, 0.50 GB in TMPDIR",
                "calibration: 3.5 tokens for each of the 1,536 columns of the widest matrices; "
                "twice as many would take about 8% off their error",
                "Hessians of all matrices would take 3.46 GB: they are collected layer by layer; "
                "--hessian FILE keeps them",
                "output-side Hessians: of attn_k, attn_v, whose outputs are the narrowest",
            ],
        ),
        (
            {"hessian": 0, "temporary": 0, "tokens_per_column": 20, "lacks_tokens": 12_288},
            [
                "stages: imatrix, GPTQ; those of the least KLD on held-out chunks are kept",
                "time: about 10 min, less what the cache has already",
                "memory: about 1.23 GB, the mapped model not counted",
                "disk: 0.00 GB of Hessian statistics, 0.03 GB beside the output",
                "error propagation: left out, as it takes 12,288 tokens or more",
                "--hessian has diagonals alone: Hessians are collected layer by layer",
            ],
        ),
        (
            {"stages": ["imatrix"], "parts": [("imatrix", 2.0)], "hessian": 1_000_000_000, "temporary": 0},
            [
                "time: about 1 min, less what the cache has already",
                "memory: about 1.23 GB, the mapped model not counted",
                "disk: 1.00 GB of Hessian statistics, 5.00 GB while they are made, 0.03 GB beside the output",
            ],
        ),
    ],
    ids=["gptq", "gptq, given diagonals", "imatrix"],
)
def test_a_forecast_is_said_in_lines(changes: dict[str, object], lines: list[str]) -> None:
    assert list(replace(EXPECTED, **changes).lines()) == lines


def test_operations_of_gptq_are_those_of_its_matrices() -> None:
    matrix = Tensor("a", Type.F32, (2000, 7000), Path(), 0, 0)
    assert quantizing([matrix, matrix]) == pytest.approx(28e6 * GGML)
    dense = rounding([Entered(2000, [matrix], n_used=1, in_stream=False)])
    assert dense == pytest.approx(14e10 / FEEDBACK + 8e9 / 3 / FACTORS + 14e6 * SEARCH)
    experts = replace(matrix, shape=(2000, 3500, 2))
    routed = rounding([Entered(2000, [experts], n_used=1, in_stream=False)])
    assert routed == pytest.approx(dense + 8e9 / 3 / FACTORS + 2 * 4e6 * MAKING)  # factors of one more


@pytest.mark.parametrize("threads", [1, 2])
def test_cores_share_what_they_round_and_not_passes(generated, threads: int) -> None:
    work = work_of(generated(F32), threads=threads)
    parts = dict(parts_of(work))
    assert parts["imatrix"] == pytest.approx(quantizing(work.model.tensors) / threads)
    assert parts["GPTQ"] == pytest.approx(rounding(work.inputs) / threads)
    # The base, the output and llama-quantize's file, which is made beside.
    assert parts[EVALUATION] == pytest.approx(3 * 10 * 3.0 + parts["imatrix"])


def test_an_imatrix_file_is_evaluated_beside_its_base_alone(generated) -> None:
    assert dict(parts_of(work_of(generated(F32), "imatrix")))[EVALUATION] == 2 * 10 * 3.0


def test_memory_holds_the_process_and_the_logits_of_the_base(generated) -> None:
    work = work_of(generated(F32), "imatrix")
    n_vocab = work.by_name["token_embd.weight"].n_rows
    assert memory_of(work) > PROCESS + bytes_in_memory(n_vocab, work.n_ctx)
