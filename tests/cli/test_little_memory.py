"""Commands under `ulimit -v`: they work, or say in a line what memory was for."""

from __future__ import annotations

import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.cli import memory
from pyquant.data import model_path
from pyquant.errors import ModelFileError, NotEnoughMemory
from pyquant.machine import memory as machine
from pyquant.models import shard
from pyquant.models.pqz.pack import pack_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.command import run

MODEL = model_path()
OFTEN = [300, 360]
RARELY = [200, 280, *range(290, 325, 5), 330, 400, 450, 500, 1000]  # MB
COMMANDS = {
    "quantize": ["quantize", MODEL, "o.gguf", "--mode", "ggml:Q4_K", "--hessian", "stats"],
    "perplexity": ["perplexity", MODEL, "--text", "text.txt", "--chunks", "2"],
    "info": ["info", MODEL],
    "dequantize": ["dequantize", "q8_0.gguf", "o.gguf"],
    "recipe": ["recipe", MODEL, "types.txt", "-o", "o.toml"],
}
RARE_COMMANDS = {
    "ecsq": ["quantize", MODEL, "o.pqz", "--mode", "ecsq", "--step", "0.01", "--hessian", "stats"],
    "histogram": ["histogram", "m.pqz", "--mode", "q4_0"],
    "error": ["error", MODEL, "m.pqz"],
    "pack": ["pack", MODEL, "o.pqz"],
    "unpack": ["unpack", "m.pqz", "o.gguf"],
    "compare": ["compare", MODEL, "m.pqz", "--text", "text.txt", "--chunks", "2"],
    "speed": ["speed", MODEL, "--rounds", "1"],
    "calibrate": ["calibrate", MODEL, "--text", "text.txt", "-o", "o.stats", "--chunks", "2"],
    "equalize": ["equalize", MODEL, "o.gguf", "--hessian", "stats"],
    "sensitivity": [
        *["sensitivity", MODEL, "--text", "text.txt", "--hessian", "stats"],
        *["--ctx", "32", "--chunks", "1", "-o", "o.toml"],
    ],
    "tables": ["tables", "build", MODEL],
    "draft run": ["draft", "run", MODEL, "q8_0.gguf", "--prompts", "prompts.jsonl", "--max-tokens", "4"],
    "mix": [
        *["mix", MODEL, "--text", "text.txt", "--hessian", "stats", "--sensitivity", "guess"],
        *["--target-bpw", "6", "--types", "Q4_0,Q8_0", "--ctx", "32", "--chunks", "1", "-o", "o.toml"],
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    text = folder / "text.txt"
    text.write_text("def animal(house):\n    return [the for the in house if the]\n" * 600)
    calibrate_model(MODEL, [text], folder / "stats", n_chunks=2)
    pack_model(MODEL, folder / "m.pqz")
    quantize_model(MODEL, folder / "q8_0.gguf", make_mode({"mode": "ggml:Q8_0"}))
    (folder / "types.txt").write_text("attn_v=q8_0\n")
    (folder / "prompts.jsonl").write_text('{"prompt": "def"}\n')
    return folder


def cases() -> list:
    every = [(name, megabytes) for name in [*COMMANDS, *RARE_COMMANDS] for megabytes in [*OFTEN, *RARELY]]
    marks = [
        pytest.mark.ci if case[0] in COMMANDS and case[1] in OFTEN else pytest.mark.slow for case in every
    ]
    return [pytest.param(*case, marks=mark) for case, mark in zip(every, marks)]


@pytest.mark.parametrize(("name", "megabytes"), cases())
def test_it_works_or_says_what_memory_was_for(folder: Path, name: str, megabytes: int) -> None:
    limit = megabytes * 1_000_000
    command = {**COMMANDS, **RARE_COMMANDS}[name]
    ran = run(*command, cwd=folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    written = list(folder.glob("o.*"))
    for output in written:  # before anything fails, or the next case finds it
        output.unlink()
    assert ran.returncode in (0, 1), ran.stderr
    assert not written or ran.returncode == 0
    assert not list(folder.glob(".o.*partial"))
    if ran.returncode:
        *remarks, said = ran.stderr.splitlines()
        assert all(line.startswith((MODEL.name, "q8_0.gguf")) for line in remarks)
        assert said.startswith("pyquant: ")
        assert "memory" in said


def test_memory_is_asked_for_only_under_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    machine.require_memory(1 << 60, "nothing")
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1 << 30, 1 << 30))
    with pytest.raises(NotEnoughMemory, match="not enough memory for a test: 2,147 MB are needed, "):
        machine.require_memory(2 << 30, "a test")


def test_a_failure_without_words_is_a_lack_of_memory_under_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    error = SystemError("error return without exception set")
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert not machine.lacks_memory(error)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1 << 30, 1 << 30))
    assert machine.lacks_memory(error)
    assert not machine.lacks_memory(RuntimeError("error return without exception set"))


def test_llama_cpps_words_are_told_as_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.said_of(ModelFileError("m: std::bad_alloc")) == "not enough memory: m: std::bad_alloc"
    assert memory.said_of(ModelFileError("m: no such file")) == "m: no such file"

    class Gguf:
        @staticmethod
        def read(path: bytes) -> None:
            raise ValueError("gguf_init: encountered bad_alloc error while reading")

    monkeypatch.setattr(shard, "_core", SimpleNamespace(Gguf=Gguf))
    with pytest.raises(NotEnoughMemory, match="for the header of"):
        shard.read_shard(MODEL)
