"""The memory and the disk that error propagation takes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pyquant.errors import ConfigError, OutputError
from pyquant.models.model_file import open_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.staged_context import StagedContext
from pyquant.rounding.staged_memory import most_at_work
from pyquant.schemes.settings import make_mode
from tests.support.models import EXPERTS, F32, Model


@pytest.mark.ci
@pytest.mark.parametrize("model", [F32, EXPERTS])
def test_the_file_does_not_depend_on_memory(
    generated, stats_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr("pyquant.rounding.staged_context.PIECE", 512)
    mode = make_mode({"mode": "ggml:IQ4_NL", "hessian": stats_of(model), "error_propagation": 32})
    files = [tmp_path / f"{memory}.gguf" for memory in (None, 600_000, 0)]
    for path, memory in zip(files, (None, 600_000, 0)):
        quantize_model(generated(model), path, mode, threads=1, memory=memory)
        assert path.read_bytes() == files[0].read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_sizes_are_said_before_it_begins_and_times_behind_it(generated, stats_of, tmp_path: Path) -> None:
    told: list[str] = []
    mode = make_mode({"mode": "ggml:IQ4_NL", "hessian": stats_of(F32), "error_propagation": 32})
    quantize_model(generated(F32), tmp_path / "out.gguf", mode, memory=1000, tell=told.append)
    assert len(told) == 2
    assert re.fullmatch(r"error propagation: about 0\.\d+ GB of memory: .* and 0\.\d+ GB on disk", told[0])
    assert re.fullmatch(
        r"error propagation took \d+\.\d s: the model's passes \d.* rounding \d+\.\d s", told[1]
    )
    with pytest.raises(ConfigError, match="memory: is of --error-propagation"):
        quantize_model(generated(F32), tmp_path / "out.gguf", make_mode({"mode": "q4_0"}), memory=1000)


def test_more_disk_than_there_is(generated, stats_of, small_disk: Path) -> None:
    mode = make_mode({"mode": "ggml:IQ4_NL", "hessian": stats_of(F32), "error_propagation": 32})
    with pytest.raises(
        OutputError, match=r"no room: error propagation: .* on disk; 0\.\d+ GB are free there"
    ):
        quantize_model(generated(F32), small_disk / "out.gguf", mode, memory=0)
    assert list(small_disk.iterdir()) == []


def test_one_stage_is_at_work_at_a_time(tmp_path: Path) -> None:
    model = open_model(Model(n_embd=64, n_ff=256, n_layer=2).write(tmp_path / "model.gguf"))
    tensors = {tensor.name: tensor for tensor in model.tensors}
    down, output = tensors["blk.1.ffn_down.weight"], tensors["output.weight"]
    layer = sum(tensor.n_bytes for tensor in model.tensors if tensor.layer == 1)
    assert layer < 14 * 256**2  # so that the widest input takes the most
    for n_tokens, expected in (
        (0, (0, 14 * 256**2)),
        (100, (layer, 14 * 256**2)),
        (8 * 64, (layer, 14 * 256**2)),  # enough to correct the output matrix, which takes less
        (8 * 256, (layer + 4 * 64 * 256, (14 + 8) * 256**2)),
    ):
        assert most_at_work(model, [(256, [down], n_tokens), (64, [output], n_tokens)]) == expected
    assert most_at_work(model, [(64, [output], 8 * 64)]) == (2 * output.n_bytes, (14 + 8) * 64**2)  # F32
    assert most_at_work(model, [(256, [down], 0)], n_sums=3) == (0, 3 * 14 * 256**2)
    experts = replace(down, shape=(256, 32, 2))  # the next one's factor is made while one is rounded
    assert most_at_work(model, [(256, [experts], 0)]) == (0, 2 * 14 * 256**2)
    weights, _ = most_at_work(model, [(256, [experts, experts], 8 * 256)])
    assert weights == layer + 2 * 4 * 2 * 32 * 256  # those of both are corrected at once
    few = replace(down, shape=(256, 8, 8))  # an expert gets an eighth of the tokens, or twice that
    for n_tokens, corrected in ((8 * 256, 0), (4 * 8 * 256, 4 * 8 * 8 * 256)):
        assert most_at_work(model, [(256, [few], n_tokens)])[0] == layer + corrected
    for n_tokens, copy in ((0, 0), (100, output.n_bytes)):
        assert most_at_work(model, [(64, [output], n_tokens)], logits=10**6)[0] == copy + 10**6
        assert most_at_work(model, [(256, [down], n_tokens)], logits=10**6)[0] == layer * (n_tokens > 0)
    assert most_at_work(model, []) == (0, 0)


def test_a_run_that_goes_on_holds_no_more_weights(
    generated, stats_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: set[int] = set()  # stages whose matrices have room
    most = [0]

    def own(self: StagedContext, stage: int, i: int) -> object:
        held.add(stage)
        most[0] = max(most[0], len(held))
        return owned(self, stage, i)

    def disown_before(self: StagedContext, stage: int) -> None:
        held.difference_update([each for each in held if each < stage])
        disowned(self, stage)

    owned, disowned = StagedContext.own, StagedContext.disown_before
    monkeypatch.setattr(StagedContext, "own", own)
    monkeypatch.setattr(StagedContext, "disown_before", disown_before)

    def stop(done: int, total: int, name: str) -> None:
        if name.startswith("blk.1.ffn_down"):
            raise KeyboardInterrupt

    whole, ended, options = tmp_path / "whole.gguf", tmp_path / "ended.gguf", {"threads": 1}
    mode = make_mode({"mode": "ggml:IQ4_NL", "hessian": stats_of(F32), "error_propagation": 32})
    quantize_model(generated(F32), whole, mode, **options)
    most_of_whole, most[0] = most[0], 0
    held.clear()
    options["checkpoint"] = tmp_path / "list"
    with pytest.raises(KeyboardInterrupt):
        quantize_model(generated(F32), ended, mode, progress=stop, **options)
    held.clear()
    most[0] = 0
    quantize_model(generated(F32), ended, mode, **options)
    assert most[0] == most_of_whole
    assert ended.read_bytes() == whole.read_bytes()
