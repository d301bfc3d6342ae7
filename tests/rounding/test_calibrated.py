"""Files made with `quantize --hessian`: what is in them, who reads them, what is refused."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from pyquant import _core
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.data import model_path
from pyquant.errors import ConfigError, ModelFileError
from pyquant.evaluate.compare import compare_models
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.unpack_q4_t import unpack_q4_t
from pyquant.rounding.factors import GPTQ_TYPES
from pyquant.rounding.inside_llama import quantize_patched
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.schemes.table_set import TableSet
from tests.support.command import run
from tests.support.factors import factor_of
from tests.support.models import EXPERTS, F32, ODD_ROWS
from tests.support.oracle import Oracle
from tests.support.outputs import output_error, weights
from tests.twins.kernels import BLOCK_BYTES, LOAD

MODES = {f"ggml:{kind.name}": {"mode": f"ggml:{kind.name}"} for kind in GPTQ_TYPES} | {
    "q4_0": {"mode": "q4_0"},
    "multizero": {"mode": "q4_0_multizero", "radius": 2},
    "q8_table": {"mode": "q8_table", "table": "basic"},
    "table": {"mode": "table", "table": "TABLES"},
}
every_mode = pytest.mark.parametrize("name", MODES)
every_model_and_mode = pytest.mark.parametrize(
    ("model", "name"), [(model, name) for model in (EXPERTS, F32) for name in MODES]
)
TABLES = TableSet(
    "of tests",
    np.array([-127, -90, -66, -48, -34, -22, -12, -4, 3, 11, 21, 33, 47, 65, 89, 126], np.int8),
    {
        "attn_output": np.arange(-120, 136, 16).astype(np.int8),
        "blk.0.attn_q.weight": np.arange(-8, 8).astype(np.int8),
    },
)


@pytest.fixture(scope="module")
def made(generated, stats_of, tmp_path_factory) -> Callable[..., Path]:
    """A generated model quantized by one of MODES, with its HESSIAN unless other settings say otherwise."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "TABLES").write_text(TABLES.to_toml())

    @cache
    def make(model: str, name: str, threads: int | None = None, **settings: str) -> Path:
        output = folder / f"{len(list(folder.iterdir()))}.gguf"
        settings = settings or {"hessian": str(stats_of(model))}
        mode = {**MODES[name], **{key: value for key, value in settings.items() if value}}
        if "table" in mode:
            mode["table"] = mode["table"].replace("TABLES", str(folder / "TABLES"))
        quantize_model(generated(model), output, make_mode(mode), threads=threads)
        return output

    return make


@every_model_and_mode
@pytest.mark.usefixtures("ggml_grids")
def test_the_output_errs_less(made, generated, stats_of, model: str, name: str) -> None:
    stats, source = Calibration.read(stats_of(model)), weights(generated(model))
    imatrix = str(stats_of(model).with_name("imatrix.gguf"))
    gptq, weighted = made(model, name), made(model, name, imatrix=imatrix)
    kinds = [{t.name: t.type for t in ModelFile(path).tensors} for path in (gptq, weighted)]
    assert kinds[0] == kinds[1]
    errors = [output_error(stats, source, weights(path)) for path in (gptq, weighted)]
    assert errors[0] < 0.85 * errors[1]


@pytest.mark.oracle
@every_model_and_mode
def test_stock_llama_cpp_runs_them(made, oracle: Oracle, text: Path, model: str, name: str) -> None:
    arguments = ["-m", made(model, name), "-f", text, "-c", 64, "--chunks", 2, "-t", 1]
    assert "nan" not in oracle.prints("Final estimate: PPL = [0-9.]+", "llama-perplexity", *arguments)


@pytest.mark.parametrize("kind", GPTQ_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("model", [F32, EXPERTS, ODD_ROWS])
def test_every_matrix_is_rounded_by_its_own_hessians(made, generated, stats_of, model, kind) -> None:
    source, stats = weights(generated(model)), Calibration.read(stats_of(model))
    dampening = make_mode({"mode": "q4_0"}).dampening
    for tensor in GGUFReader(made(model, f"ggml:{kind.name}")).tensors:
        type_ = Type(int(tensor.tensor_type))
        if type_ not in GPTQ_TYPES:
            continue
        x, together = source[tensor.name], _core.columns_together(int(type_))
        for expert, stored in enumerate(tensor.data.reshape(len(x), x.shape[1], -1)):
            if tensor.name in stats.matrices:
                factor = factor_of(stats, tensor.name, expert, dampening=dampening, together=together)
            else:
                factor = _core.independent(np.ones(x.shape[2], np.float32))
            encoder = _core.gptq_encoder(int(type_), factor)
            np.testing.assert_array_equal(encoder.encode(x[expert]), stored)


@pytest.mark.parametrize("name", ["q4_0", "multizero", "q8_table", "table"])
@pytest.mark.parametrize("model", [F32, EXPERTS])
def test_weights_are_of_their_tables(made, model: str, name: str) -> None:
    kept = np.arange(-8, 8)
    tables = {
        "q4_0": TableSet("", kept),
        "multizero": TableSet("", kept[(kept == 0) | (np.abs(kept) > 2)]),
        "q8_table": TableSet("", np.array([-128, -64, -32, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, 32, 64])),
        "table": TABLES,
    }[name]
    for tensor in GGUFReader(made(model, name)).tensors:
        if tensor.tensor_type.name == ("Q8_0" if "table" in name else "Q4_0"):
            _, values = LOAD[Type(int(tensor.tensor_type))](
                tensor.data.reshape(-1, BLOCK_BYTES[tensor.tensor_type])
            )
            assert set(values.ravel()) <= set(tables.of(tensor.name))


@pytest.mark.parametrize("name", ["q4_0", "multizero", "q8_table", "table"])
def test_packed_codes_unpack_to_the_stock_file(made, generated, stats_of, name: str, tmp_path: Path) -> None:
    packed = made(EXPERTS, name, hessian=str(stats_of(EXPERTS)), store="q4_t")
    assert Type.Q4_T in {tensor.type for tensor in ModelFile(packed).tensors}
    unpack_q4_t(packed, tmp_path / "unpacked.gguf")
    assert (tmp_path / "unpacked.gguf").read_bytes() == made(EXPERTS, name).read_bytes()


def test_what_the_file_says_of_its_making(made, generated, stats_of) -> None:
    file = ModelFile(made(F32, "table"))
    assert file.get("pyquant.mode") == "table"
    assert file.get("pyquant.table.name") == "of tests"
    assert float(file.get("pyquant.dampening")) == make_mode({"mode": "q4_0"}).dampening
    assert file.get("pyquant.source.sha256") == ModelFile(generated(F32)).sha256()
    assert file.get("quantize.imatrix.file") == str(stats_of(F32))[:127]
    assert file.get("quantize.imatrix.chunks_count") == 16
    stock = ModelFile(made(F32, "ggml:IQ4_NL"))
    assert stock.get("pyquant.mode") == "ggml:IQ4_NL"
    assert stock.get("pyquant.source.sha256") == file.get("pyquant.source.sha256")


def test_threads_do_not_change_the_file(made, stats_of, tmp_path: Path) -> None:
    for threads in (1, 3):
        again = made(EXPERTS, "ggml:Q4_K", threads)
        assert again.read_bytes() == made(EXPERTS, "ggml:Q4_K").read_bytes()


def test_an_imatrix_in_place_of_statistics_weighs_only(made, generated, stats_of) -> None:
    imatrix = stats_of(F32).with_name("imatrix.gguf")
    stats, source = Calibration.read(imatrix), weights(generated(F32))
    for tensor in GGUFReader(made(F32, "ggml:IQ4_NL", hessian=str(imatrix))).tensors:
        if tensor.tensor_type.name == "IQ4_NL" and tensor.name in stats.matrices:
            factor = _core.independent(stats.diagonal(tensor.name)[0])
            encoder = _core.gptq_encoder(int(Type.IQ4_NL), factor)
            np.testing.assert_array_equal(encoder.encode(source[tensor.name][0]), tensor.data)


def test_dampening_decides(made, generated, stats_of) -> None:
    stats, source = Calibration.read(stats_of(F32)), weights(generated(F32))
    files = [made(F32, "ggml:Q4_0", hessian=str(stats_of(F32)), dampening=d) for d in ("0.001", "10")]
    matched = [output_error(stats, source, weights(path)) for path in files]
    plain = [sum(np.square(source[k] - v).sum() for k, v in weights(path).items()) for path in files]
    assert matched[0] < matched[1]
    assert plain[0] > plain[1]


def refused(source: Path, output: Path, error: type[Exception], message: str, **settings: object) -> None:
    with pytest.raises(error, match=message):
        quantize_model(source, output, make_mode({"mode": "ggml:IQ4_NL", **settings}))
    assert not output.exists()


def test_what_is_refused(generated, stats_of, text: Path, tmp_path: Path) -> None:
    source, stats, out = generated(F32), stats_of(F32), tmp_path / "out.gguf"
    of_another = rf"{stats_of(EXPERTS)}: made from another model than {source}.*calibrate this one"
    refused(source, out, ModelFileError, of_another, hessian=stats_of(EXPERTS))
    imatrix = stats.with_name("imatrix.gguf")
    refused(source, out, ConfigError, "imatrix: Hessian statistics hold one", hessian=stats, imatrix=imatrix)
    refused(source, out, ModelFileError, "No such file", hessian=tmp_path / "none")
    with pytest.raises(ConfigError, match="dampening"):
        make_mode({"mode": "q4_0", "hessian": stats, "dampening": 0})


def test_matrices_that_few_tokens_entered_are_rounded_by_their_diagonal(
    generated, text: Path, tmp_path: Path
) -> None:
    few, imatrix, out = tmp_path / "few", tmp_path / "imatrix.gguf", tmp_path / "out.gguf"
    calibrate_model(generated(F32), [text], few, n_ctx=32, n_chunks=2, imatrix=imatrix, random=0)
    done = quantize_model(generated(F32), out, make_mode({"mode": "ggml:IQ4_NL", "hessian": few}))
    for tensor in done.tensors:
        if "ffn_down" in tensor.name:
            assert (
                tensor.without_gptq
                == "64 tokens are too few for rows of 96; calibrate with 3 chunks of 32 or more"
            )
        elif "attn_q" in tensor.name:
            assert tensor.without_gptq is None
    mode = make_mode({"mode": "ggml:IQ4_NL", "hessian": imatrix})
    quantize_model(generated(F32), tmp_path / "diagonal.gguf", mode)
    ours, theirs = (
        {tensor.name: tensor.data.tobytes() for tensor in GGUFReader(path).tensors}
        for path in (out, tmp_path / "diagonal.gguf")
    )
    for name, data in ours.items():
        if "ffn_down" in name:
            assert data == theirs[name]
    assert ours != theirs


def test_hessians_that_are_damaged_are_named(generated, stats_of, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(stats_of(F32).read_bytes())
    tensors = {tensor.name: tensor for tensor in ModelFile(damaged).tensors}
    hessian = tensors["blk.1.ffn_down.weight.hessian"]
    with damaged.open("r+b") as file:
        file.seek(hessian.offset)
        file.write(struct.pack("<f", np.nan) * hessian.n_weights)
    message = rf"{damaged}: tensor 'blk\.1\.ffn_down\.weight\.hessian' is damaged"
    refused(generated(F32), tmp_path / "out.gguf", ModelFileError, message, hessian=damaged)


@every_mode
def test_llama_cpps_own_quantizer_refuses(generated, stats_of, name: str, tmp_path: Path) -> None:
    (tmp_path / "TABLES").write_text(TABLES.to_toml())
    settings = {**MODES[name], "hessian": stats_of(F32)}
    if name == "table":
        settings["table"] = str(tmp_path / "TABLES")
    with pytest.raises(ConfigError, match="sees no Hessians"):
        quantize_patched(generated(F32), tmp_path / "out.gguf", make_mode(settings))
    assert not (tmp_path / "out.gguf").exists()


def test_the_command(generated, stats_of, made, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    arguments = ["quantize", generated(F32), out, "--mode", "ggml:IQ4_NL", "--hessian", stats_of(F32)]
    told = run(*arguments, "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["mode"] == "ggml:IQ4_NL"
    assert out.read_bytes() == made(F32, "ggml:IQ4_NL").read_bytes()
    told = run(*arguments, "--force", "--imatrix", stats_of(F32).with_name("imatrix.gguf"))
    assert (told.returncode, told.stdout) == (2, "")
    assert "give either --imatrix or --hessian" in told.stderr


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("in_domain", [True, False], ids=["in_domain", "out_of_domain"])
def test_never_worse_than_the_same_type_with_an_imatrix(
    oracle: Oracle, held_out_text: Path, tmp_path: Path, in_domain: bool, request: pytest.FixtureRequest
) -> None:
    source, text = model_path(), held_out_text
    if in_domain:
        seen = request.getfixturevalue("training_text")
    else:
        seen = request.getfixturevalue("shared") / "data/tinyshakespeare.txt"
    stats, imatrix = tmp_path / "stats", tmp_path / "imatrix.gguf"
    # One thread: llama.cpp's threads wait for each other by spinning, and tests may not be alone.
    calibrate_model(source, [seen], stats, n_ctx=256, n_chunks=60, threads=1)
    run = ["-m", source, "-f", seen, "-c", 256, "--chunks", 60, "-t", 1]
    oracle.run("llama-imatrix", *run, "-o", imatrix, "--no-ppl")
    pairs = []
    for kind in ("Q4_0", "IQ4_NL", "Q4_K"):
        ours, theirs = tmp_path / f"{kind}.gguf", tmp_path / f"{kind}-imatrix.gguf"
        quantize_model(source, ours, make_mode({"mode": f"ggml:{kind}", "hessian": stats}))
        oracle.quantize(source, theirs, kind, "--imatrix", imatrix)
        pairs.append((ours, theirs))
    files = [path for pair in pairs for path in pair]
    found = compare_models(source, files, text, n_ctx=256, n_chunks=40, threads=1).to_json()
    kld = {one["model"]: one["kld"]["mean"] for one in found["candidates"]}
    for ours, theirs in pairs:
        assert kld[str(ours)] < 0.9 * kld[str(theirs)]
    # Stock llama.cpp says so too.
    logits = ["-c", 256, "-t", 1, "--kl-divergence-base", tmp_path / "logits"]
    run = ["llama-perplexity", "-m", source, "-f", text, "--chunks", 40, *logits]
    oracle.prints("Final estimate", *run)
    told = oracle.prints("Same top p:", "llama-perplexity", "-m", pairs[1][0], "--kl-divergence", *logits)
    (stock,) = re.findall(r"Mean +KLD: +([0-9.]+)", told)
    assert float(stock) == pytest.approx(kld[str(pairs[1][0])], rel=0.01)
