"""Calls of `pyquant quantize IN OUT TYPE`: sizes in the place of types, what is refused, the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyquant.data import model_path
from pyquant.errors import ConfigError, ModelFileError, TextError
from pyquant.files.text import make_text
from pyquant.fit.candidate import Evaluation
from pyquant.fit.method.quantize import quantize
from pyquant.fit.mixtures import WantedSize
from tests.support.command import run
from tests.support.methods import STAGES, made


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "awq"}, "'awq' is not known; choices: rtn, imatrix, gptq, best"),
        ({"method": "bets"}, "'bets' is not known, did you mean best"),
        ({"type": "Q4_KM"}, "did you mean Q4_K_M"),
        ({"output": "out.pqz"}, "a type makes a GGUF"),
        ({"memory": 1 << 20, "method": "rtn", "text": None}, "--memory: is for methods gptq and best"),
        ({"type": WantedSize(target_bpw=7), "method": "gptq", "pure": True}, "pure: a size mixes types"),
        ({"method": "best", "requantize": True}, "`pyquant dequantize` makes a model for best"),
        ({"method": "gptq", "imatrix": "x"}, "--imatrix: is for method rtn"),
        ({"method": "rtn", "text": "x"}, "--text: of methods that calibrate"),
        ({"method": "imatrix", "hessian": "x"}, "--hessian: is for methods gptq and best"),
        ({"method": "imatrix", "memory": 1 << 20}, "--memory: is for methods gptq and best"),
    ],
)
def test_what_is_refused(options: dict, says: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        quantize(source, **{"output": tmp_path / "out.gguf", "type": "Q4_0", **options})


def test_a_size_gets_types_that_fit(source: Path, short: Path, tmp_path: Path) -> None:
    largest = quantize(source, tmp_path / "rtn.gguf", WantedSize(target_bpw=8.5))
    assert largest.result["bits_per_weight"] <= 8.5
    like = quantize(source, tmp_path / "like.gguf", WantedSize(like="Q5_0"))
    assert like.result["mode"] == "ggml:Q5_0"
    with pytest.raises(ConfigError, match="are less than any type takes"):
        quantize(source, tmp_path / "none.gguf", WantedSize(target_size=1000))


@pytest.mark.ci
def test_a_size_gets_a_mix_of_types(source: Path, short: Path, tmp_path: Path) -> None:
    done = quantize(
        source,
        tmp_path / "out.gguf",
        WantedSize(target_bpw=8),
        method="gptq",
        text=short,
        n_ctx=64,
        n_chunks=16,
    )
    assert done.result["bits_per_weight"] <= 8
    assert done.result["mode"] == "recipe"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.ci
def test_types_that_need_importances_get_them(short: Path, tmp_path: Path) -> None:
    options = {"method": "gptq", "text": short, "n_ctx": 64, "n_chunks": 16}
    done, planned = (
        quantize(model_path(), tmp_path / "out.gguf", "IQ2_XXS", dry_run=dry_run, **options)
        for dry_run in (False, True)
    )
    assert [stage.name for stage in done.stages] == STAGES[:2]
    types = [[tensor["type"] for tensor in made.result["tensors"]] for made in (done, planned)]
    assert types[0] == types[1]
    assert types[0].count("IQ2_XXS") > 10


def test_what_cannot_be_is_refused_before_work(source: Path, short: Path, tmp_path: Path) -> None:
    quantized, output = tmp_path / "q8_0.gguf", tmp_path / "out.gguf"
    quantize(source, quantized, "Q8_0")
    begun: list[str] = []
    with pytest.raises(ModelFileError, match="already quantized"):
        made(quantized, output, short, progress=lambda what, done, total: begun.append(what))
    with pytest.raises(TextError, match="too short"):
        made(source, output, short, evaluate=Evaluation(make_text(short, b"a"), 64, 2))
    assert begun == []
    assert not (tmp_path / ".out.gguf.stages").exists()
    with pytest.raises(TextError, match="too short"):
        quantize(source, output, "Q4_0", evaluate=Evaluation(make_text(short, b"a"), 64, 2))
    with pytest.raises(ConfigError, match="takes one text"):
        quantize(source, output, "Q4_0", evaluate=Evaluation([short, short], 64, 2))
    assert not output.exists()


@pytest.mark.ci
def test_options_of_modes_and_types_are_kept_apart(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.gguf"
    for words, says in (
        (["--mode", "q4_0", "--method", "best"], "--method: is for a type or a size"),
        (["--mode", "q4_0", "--calibration-chunks", "3"], "--calibration-chunks: is for a type or a size"),
        (
            ["--mode", "q4_0", "--target-size", "3MB"],
            "--target-size: is for mode ecsq, not for q4_0; drop --mode q4_0",
        ),
        (["Q4_0", "--chunks", "3"], "--chunks: is of --evaluate"),
        (["--target-size", ""], "is not a size"),
        (["--like", "Q4"], "none of llama-quantize's"),
    ):
        told = run("quantize", source, output, *words)
        assert (told.returncode, told.stdout) == (2, ""), words
        assert says in told.stderr, words
    assert not output.exists()


def test_the_command(source: Path, short: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.gguf"
    told = run("quantize", source, output, "Q4_0", "--method", "gptq", "--text", short, "--evaluate", short)
    assert told.returncode == 0, told.stderr
    assert "of the whole file" in told.stdout
    assert "KLD of llama-quantize-Q4_0 less that of out" in told.stdout
    again = run("quantize", source, output, "Q4_0", "--method", "gptq", "--text", short, "--force", "--json")
    result = json.loads(again.stdout)
    assert result["schema"] == "pyquant.quantize/1"
    assert [stage["name"] for stage in result["stages"]] == STAGES[:2]
    assert result["bits_per_weight"] == 8 * output.stat().st_size / result["n_weights"]
    both = run("quantize", source, output, "Q4_0", "--mode", "q4_0")
    assert (both.returncode, both.stdout) == (2, "")
    assert "--mode: is not for a type or a size" in both.stderr
    assert "exists; --force replaces it" in run("quantize", source, output, "Q4_0").stderr
