"""Calls of `pyquant quantize IN OUT TYPE`: sizes in the place of types, what is refused, the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant import _core
from pyquant.calibration.calibrate import calibrate_model
from pyquant.data import model_path
from pyquant.errors import ConfigError, ModelFileError, PyquantError, TextError
from pyquant.files.text import make_text
from pyquant.fit.evaluation import Evaluation
from pyquant.fit.method.quantize import quantize
from pyquant.fit.method.types_for_size import stock_for, with_spare
from pyquant.fit.mixtures import FLOORED, Files, WantedSize, base_of, check_reachable, usable_at
from pyquant.models.model_file import open_model
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.equalize.equalize_model import equalize_model
from pyquant.rounding.make_plan import make_plan
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.methods import STAGES, made
from tests.support.models import EXPERTS
from tests.support.other_models import bert


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
        ({"method": "imatrix", "effort": "high"}, "--effort: is for methods gptq and best"),
        ({"method": "best", "effort": "most"}, "effort: 'most' is not known; choices: normal, high"),
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
    with pytest.raises(ConfigError, match="are less than a size takes"):
        quantize(source, tmp_path / "none.gguf", WantedSize(target_size=1000))


@pytest.mark.ci
def test_a_size_counts_what_an_imatrix_changes(short: Path, tmp_path: Path) -> None:
    of_imatrix = {"method": "imatrix", "text": short, "n_ctx": 64, "n_chunks": 4, "force": True}
    output = tmp_path / "out.gguf"
    like = quantize(model_path(), output, WantedSize(like="IQ2_M"), **of_imatrix)
    assert like.result["mode"] == "ggml:IQ2_M"
    n_bytes = quantize(model_path(), output, WantedSize(like="Q4_0"), **of_imatrix).result["output_bytes"]
    for wanted in (n_bytes, n_bytes - 1):
        exact = quantize(model_path(), output, WantedSize(target_size=wanted), **of_imatrix)
        assert exact.result["output_bytes"] == output.stat().st_size <= wanted


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (WantedSize(target_size=1_000_000), "are the least that types which may be used give"),
        (WantedSize(target_size=50_000_000), "nothing is to be quantized"),
        (WantedSize(like="NVFP4"), "like: NVFP4 is no mixture that recipes begin with"),
    ],
)
def test_a_size_that_no_mix_has_is_refused_before_work(
    wanted: WantedSize, says: str, short: Path, tmp_path: Path
) -> None:
    begun: list[str] = []
    with pytest.raises(ConfigError, match=says):
        quantize(
            model_path(), tmp_path / "out.gguf", wanted, method="best", text=short,
            progress=lambda what, done, total: begun.append(what),
        )  # fmt: skip
    assert begun == []


def test_a_size_of_a_model_that_is_no_decoder_is_of_a_type_that_fits(short: Path, tmp_path: Path) -> None:
    model, output = bert(tmp_path / "model.gguf"), tmp_path / "out.gguf"
    least = quantize(model, output, "Q2_K").result["output_bytes"]
    output.unlink()
    with pytest.raises(ConfigError, match=f"{least - 1:,} bytes are less than a size takes: Q2_K"):
        quantize(model, output, WantedSize(target_size=least - 1), method="best", text=short)
    assert quantize(model, output, WantedSize(target_size=least), method="best", text=short).method == "rtn"
    assert output.stat().st_size == least


def least_of(refused: ConfigError) -> int:
    """Read the least size from what refuses a smaller one."""
    return int(re.search(r"([\d,]+) bytes[^,]* are the least", str(refused))[1].replace(",", ""))


def test_a_size_is_refused_where_embeddings_have_no_output_side_hessian(
    generated: Callable[[str], Path], short: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="are the least") as refused:
        quantize(
            generated(EXPERTS), tmp_path / "out.gguf", WantedSize(target_size=1), method="gptq", text=short
        )
    least = least_of(refused.value)
    begun: list[str] = []
    with pytest.raises(ConfigError, match="are the least"):
        quantize(
            generated(EXPERTS), tmp_path / "out.gguf", WantedSize(target_size=least - 1), method="best",
            text=short, progress=lambda what, *_: begun.append(what),
        )  # fmt: skip
    assert begun == []


@pytest.mark.parametrize("method", ["gptq", "best"])
def test_the_least_size_that_is_named_is_taken(short: Path, tmp_path: Path, method: str) -> None:
    def least_for(n_bytes: int) -> int:
        with pytest.raises(ConfigError, match=f"{n_bytes:,} bytes .* are wanted") as refused:
            quantize(model_path(), output, WantedSize(target_size=n_bytes), **asked)
        return least_of(refused.value)

    output, statistics = tmp_path / "out.gguf", tmp_path / "hessian.gguf"
    asked = {"method": method, "text": short, "n_ctx": 64, "n_chunks": 4, "dry_run": True}
    least = least_for(1_000_000)
    assert least_for(least - 1) == least
    quantize(model_path(), output, WantedSize(target_size=least), **asked)
    # Statistics tell more: what is refused with them was not let through without.
    calibrate_model(model_path(), [short], statistics, n_ctx=64, n_chunks=4, output_side=2)
    wanted, model = with_spare(WantedSize(target_size=least), method), open_model(model_path())
    files = Files(model, statistics, tmp_path, spare=wanted.spare)
    stock, options = usable_at(files, least, None, FLOORED - ({EMBEDDINGS} if method == "best" else set()))
    check_reachable(files, least, options, base_of(stock))


def test_mixes_reach_sizes_below_those_of_types(tmp_path: Path) -> None:
    model, wanted = open_model(model_path()), WantedSize(target_size=2_400_000)
    assert stock_for(model, wanted, {}, "best") == "Q2_K"
    with pytest.raises(ConfigError, match="2,400,000 bytes are less than a size takes: Q2_K"):
        stock_for(model, wanted, {}, "imatrix")


@pytest.mark.ci
def test_a_mix_leaves_room_for_what_equalization_writes(short: Path, tmp_path: Path) -> None:
    equalized, statistics = tmp_path / "equalized.gguf", tmp_path / "hessian.gguf"
    calibrate_model(model_path(), [short], statistics, n_ctx=64, n_chunks=8)
    of_equalized = tmp_path / "of_equalized.gguf"
    equalize_model(model_path(), statistics, equalized, hessian_out=of_equalized)
    sizes = [
        make_plan(open_model(model), make_mode({"mode": "ggml:Q4_K_M", "hessian": stats})).output_bytes
        for model, stats in ((model_path(), statistics), (equalized, of_equalized))
    ]
    wanted = with_spare(WantedSize(target_size=1), "best")
    assert 0 < sizes[1] - sizes[0] <= wanted.spare


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
    learned = bert(tmp_path / "bert.gguf")
    with pytest.raises(PyquantError, match=r"learned 64 positions|is an encoder"):
        quantize(learned, output, "Q8_0", evaluate=Evaluation(short))
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


@pytest.mark.ci
def test_the_command_takes_statistics_that_are_there(source: Path, short: Path, tmp_path: Path) -> None:
    options = ["Q4_0", "--method", "gptq", "--text", short, "--hessian", tmp_path / "hessian.gguf"]
    files = [tmp_path / "first.gguf", tmp_path / "second.gguf"]
    for path in files:
        told = run("quantize", source, path, *options)
        assert told.returncode == 0, told.stderr
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.ci
def test_shards_of_a_size_are_not_larger_together(short: Path, tmp_path: Path) -> None:
    for method, wanted in (("rtn", 3_477_760), ("gptq", 3_400_000)):
        text = {} if method == "rtn" else {"text": short, "n_ctx": 64, "n_chunks": 8}
        done = quantize(
            model_path(), tmp_path / f"{method}.gguf", WantedSize(target_size=wanted), method=method,
            split=1 << 20, **text,
        )  # fmt: skip
        assert len(done.result["files"]) > 2
        assert sum(Path(path).stat().st_size for path in done.result["files"]) <= wanted


def test_a_file_is_complete_before_it_is_evaluated(source: Path, short: Path, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if what == "evaluation":
            raise KeyboardInterrupt

    output = tmp_path / "out.gguf"
    with pytest.raises(KeyboardInterrupt):
        made(source, output, short, "imatrix", evaluate=Evaluation(short, 64, 2), progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_a_model_without_tensors_has_no_size_to_choose_types_by(
    source: Path, short: Path, tmp_path: Path
) -> None:
    vocabulary, header = tmp_path / "vocabulary.gguf", _core.Gguf()
    header.copy_keys(open_model(source).header)
    vocabulary.write_bytes(header.header())
    with pytest.raises(ConfigError, match="has no tensors whose types make a size; give a type"):
        quantize(vocabulary, tmp_path / "out.gguf", WantedSize(target_bpw=4), method="best", text=short)
    quantize(vocabulary, tmp_path / "one.gguf", "Q4_0")
    done = quantize(vocabulary, tmp_path / "out.gguf", "Q4_0", split="keep")
    assert Path(done.result["output"]).read_bytes() == (tmp_path / "one.gguf").read_bytes()


def test_the_context_of_an_evaluation_is_the_model_s(source: Path, short: Path, tmp_path: Path) -> None:
    told = run("quantize", source, tmp_path / "out.gguf", "Q8_0", "--evaluate", short)
    assert told.returncode == 0, told.stderr
    assert "of 256, base's perplexity" in told.stdout
    assert "may be nonsense" not in told.stderr


def test_types_that_no_shard_holds_are_in_no_mix(source: Path, short: Path, tmp_path: Path) -> None:
    tensors = {tensor.name: tensor for tensor in open_model(source).tensors}

    def largest(name: str, **options: object) -> int:
        done = quantize(
            source, tmp_path / name, WantedSize(target_bpw=20), method="gptq", text=short, n_ctx=64,
            n_chunks=16, **options,
        )  # fmt: skip
        types = {each["name"]: Type[each["type"]] for each in done.result["tensors"]}
        return max(
            tensor.n_rows * _core.row_bytes(int(types[name]), tensor.n_per_row)
            for name, tensor in tensors.items()
        )

    most = largest("free.gguf") - 4096
    assert largest("out.gguf", split=most) <= most
