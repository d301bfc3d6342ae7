"""Shards: tensors in their places, keys that llama.cpp reads, and all of the files or none."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import pyquant
from pyquant.data import model_path
from pyquant.errors import ConfigError, OutputError
from pyquant.files import output_files
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.shards import shard_paths
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.models import Model
from tests.support.oracle import Oracle

F32 = "f32, rows of 64 and 96"
Q4_0 = make_mode({"mode": "ggml:Q4_0"})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(path: Path) -> dict[str, bytes]:
    return {tensor.name: tensor.data() for tensor in ModelFile(path).tensors}


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "ggml:Q4_K"},
        {"mode": "table", "table": "configs/tables/nonlinear.toml", "store": "q4_t"},
        {"mode": "ggml:IQ4_NL", "hessian": True, "error_propagation": 8},
    ],
)
def test_shards_hold_what_one_file_holds(
    settings: dict[str, object], generated: Callable[[str], Path], stats_of: Callable[[str], Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    if "hessian" in settings:
        settings = settings | {"hessian": stats_of(F32)}
    mode = make_mode(settings)
    whole = quantize_model(generated(F32), tmp_path / "whole.gguf", mode, threads=1)
    split = quantize_model(generated(F32), tmp_path / "out.gguf", mode, threads=1, split=30_000)
    paths = shard_paths(tmp_path / "out.gguf", len(split.files))
    assert split.files == [str(path) for path in paths]
    assert len(paths) > 2
    assert split.output_bytes == sum(path.stat().st_size for path in paths)
    assert names(tmp_path) == sorted(["whole.gguf", *(path.name for path in paths)])
    assert contents(paths[0]) == contents(tmp_path / "whole.gguf")
    assert split.to_json()["tensors"] == whole.to_json()["tensors"]
    one = ModelFile(tmp_path / "whole.gguf")
    assert ModelFile(paths[0]).keys == one.keys | {"split.no", "split.count", "split.tensors.count"}


def test_a_shard_is_as_full_as_can_be(generated: Callable[[str], Path], tmp_path: Path) -> None:
    done = quantize_model(generated(F32), tmp_path / "out.gguf", Q4_0, threads=1, split=30_000)
    sizes = {tensor.name: -(-tensor.n_bytes // 32) * 32 for tensor in done.tensors}
    model, shards = ModelFile(done.files[0]), []
    for path in model.paths:
        shards.append([sizes[tensor.name] for tensor in model.tensors if tensor.path == path])
    assert all(sum(shard) <= 30_000 for shard in shards)
    assert all(sum(shard) + behind[0] > 30_000 for shard, behind in itertools.pairwise(shards))


@pytest.mark.oracle
@pytest.mark.parametrize(("type_", "most"), [("Q4_K_M", 1), ("Q8_0", 2)])
def test_they_are_those_of_llama_gguf_split(oracle: Oracle, type_: str, most: int, tmp_path: Path) -> None:
    whole = oracle.quantize(model_path(), tmp_path / "whole.gguf", type_)
    oracle.run("llama-gguf-split", "--split-max-size", f"{most}M", whole, tmp_path / "theirs")
    done = pyquant.quantize(model_path(), tmp_path / "ours.gguf", type_, split=most * 1_000_000)
    theirs = sorted(tmp_path.glob("theirs-*"))
    assert len(theirs) > 2
    assert [Path(p).read_bytes() for p in done.result["files"]] == [p.read_bytes() for p in theirs]


@pytest.mark.oracle
@pytest.mark.parametrize("n_shards", [1, 3])
def test_kept_shards_are_those_of_llama_quantize(oracle: Oracle, n_shards: int, tmp_path: Path) -> None:
    model = Model(n_embd=256, n_ff=512)
    per_shard = -(-len(model.shapes()) // n_shards) if n_shards > 1 else 0
    source = model.write(tmp_path / "model.gguf", tensors_per_shard=per_shard)
    oracle.quantize(source, tmp_path / "theirs.gguf", "Q4_K_M", "--keep-split")
    done = pyquant.quantize(source, tmp_path / "ours.gguf", "Q4_K_M", split="keep")
    theirs = sorted(tmp_path.glob("theirs-*"))
    assert len(theirs) == n_shards
    assert [Path(p).read_bytes() for p in done.result["files"]] == [p.read_bytes() for p in theirs]


@pytest.mark.oracle
def test_stock_llama_cpp_runs_them(oracle: Oracle, held_out_text: Path, tmp_path: Path) -> None:
    ppl = []
    for name, split in (("whole.gguf", None), ("split.gguf", 1_000_000)):
        done = quantize_model(model_path(), tmp_path / name, Q4_0, split=split)
        words = ["-m", done.files[0], "-f", held_out_text, "-c", 128, "--chunks", 2, "-t", 1]
        printed = oracle.prints("Final estimate", "llama-perplexity", *words)
        ppl.append(printed.partition("Final estimate")[2].splitlines()[0])
    assert ppl[0] == ppl[1] != ""


def test_a_quantized_model_is_dequantized_into_its_shards(generated, tmp_path: Path) -> None:
    quantized = quantize_model(generated(F32), tmp_path / "q.gguf", Q4_0, threads=1, split=30_000)
    done = run("dequantize", quantized.output, tmp_path / "f.gguf", "--keep-split", "--json")
    assert done.returncode == 0, done.stderr
    first = Path(json.loads(done.stdout)["output"])
    assert first == shard_paths(tmp_path / "f.gguf", len(quantized.files))[0]
    places = [
        [(tensor.name, model.paths.index(tensor.path)) for tensor in model.tensors]
        for model in (ModelFile(quantized.output), ModelFile(first))
    ]
    assert places[0] == places[1]


def test_what_is_there_is_refused(generated: Callable[[str], Path], tmp_path: Path) -> None:
    done = quantize_model(generated(F32), tmp_path / "out.gguf", Q4_0, threads=1, split=30_000)
    for path in map(Path, done.files[:-1]):
        path.unlink()
    words = ["quantize", generated(F32), tmp_path / "out.gguf", "Q4_0", "--split-max-size"]
    refused = run(*words, "30kB")
    assert refused.returncode == 1
    assert f"{done.files[-1]}: exists; --force replaces it" in refused.stderr
    assert len(names(tmp_path)) == 1
    assert run(*words, "30k", "--force").returncode == 0
    kept = run(
        "quantize", done.files[0], tmp_path / "out.gguf", "F16", "--requantize", "--keep-split", "--force"
    )
    assert kept.returncode == 1
    assert "is the input, which is never overwritten" in kept.stderr


def test_sizes_that_cannot_be_are_refused(generated: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tensor 'output.weight' takes 21,760 bytes, .* at most 500; give"):
        quantize_model(generated(F32), tmp_path / "out.gguf", Q4_0, split=500)
    words = ["quantize", generated(F32), tmp_path / "out.gguf", "Q4_0", "--split-max-size"]
    for more, said in (
        (["many"], "--split-max-size: 'many' is not a size such as 800MB"),
        (["1G", "--keep-split"], "give one of --split-max-size and --keep-split"),
    ):
        refused = run(*words, *more)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in refused.stderr
    words[2:4] = [tmp_path / "out.pqz", "--mode", "q4_0"]
    assert "out.pqz: a .pqz file is whole; shards are GGUFs" in run(*words, "1G").stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("at", [0, 2])
def test_none_is_left_where_one_cannot_get_its_name(
    generated: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_by, at: int
) -> None:
    renamed: list[object] = []

    def replace(old: Path, new: Path) -> None:
        if len(renamed) == at:
            renamed.append(None)
            raise stopped_by
        renamed.append(new)
        os.rename(old, new)

    monkeypatch.setattr(output_files.os, "replace", replace)
    with pytest.raises((KeyboardInterrupt, OutputError)):
        quantize_model(generated(F32), tmp_path / "out.gguf", Q4_0, threads=1, split=30_000)
    assert names(tmp_path) == []


def test_an_interrupted_call_leaves_none(generated: Callable[[str], Path], tmp_path: Path) -> None:
    def stop(done: int, total: int, name: str) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_model(generated(F32), tmp_path / "out.gguf", Q4_0, threads=1, split=30_000, progress=stop)
    assert names(tmp_path) == []


def test_a_killed_call_goes_on(generated: Callable[[str], Path], tmp_path: Path) -> None:
    def stop(done: int, total: int, name: str) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    at_once = quantize_model(generated(F32), tmp_path / "whole.gguf", Q4_0, threads=1, split=30_000)
    call = {"threads": 1, "split": 30_000, "checkpoint": tmp_path / "list"}
    with pytest.raises(KeyboardInterrupt):
        quantize_model(generated(F32), tmp_path / "out.gguf", Q4_0, progress=stop, **call)
    noted = len((tmp_path / "list").read_text().splitlines())
    assert noted > 2
    done = quantize_model(generated(F32), tmp_path / "out.gguf", Q4_0, **call)
    assert [Path(p).read_bytes() for p in done.files] == [Path(p).read_bytes() for p in at_once.files]
