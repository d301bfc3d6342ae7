"""Statistics that are not what was written, and statistics that no run of a model can have given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyquant import _core
from pyquant.calibration import Calibration
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.hessian_file import KEY, VERSION, metadata_header, read_header
from pyquant.calibration.hessian_rows import RowWriter, add_checksums
from pyquant.errors import ModelFileError
from pyquant.files.output_file import OutputFile
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import file_bytes
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import Model
from tests.support.stats import everything, with_value

MATRIX, OTHER = "blk.0.attn_q.weight", "blk.0.attn_k.weight"  # of one input
SMALL = Model(n_embd=32, n_ff=64, n_layer=1, n_head=2, n_head_kv=2, tied=True, n_vocab=300)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SMALL.write(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture(scope="module")
def stats(model: Path) -> Path:
    path = model.with_name("stats")
    text = model.with_name("text.txt")
    text.write_text("the animal in the house " * 60)
    text.with_name("other.txt").write_text("a word beside another " * 60)
    texts = [text, text.with_name("other.txt")]
    calibrate_model(model, texts, path, n_ctx=64, n_chunks=1, threads=1)
    return path


def test_a_flipped_bit_is_seen_or_changes_nothing(stats: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole, expected = stats.read_bytes(), everything(stats)
    damaged = tmp_path / "damaged"
    n_refused, problem = 0, f"{damaged}: nothing yet"
    for _ in range(400):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        damaged.write_bytes(data)
        try:
            seen = everything(damaged)
        except ModelFileError as error:
            n_refused += 1
            seen, problem = expected, str(error)
        assert seen == expected  # only padding was damaged
        assert problem.startswith(f"{damaged}: ")
        assert "\n" not in problem
    assert n_refused > 350


@pytest.mark.parametrize(
    ("tensor", "dtype", "value", "says"),
    [
        ("hessian", np.float32, np.inf, f"Hessian statistics of what enters {OTHER} are not finite"),
        ("hessian", np.float32, np.nan, f"Hessian statistics of what enters {OTHER} are not finite"),
        ("hessian", np.float32, 3e38, f"Hessian statistics of what enters {OTHER} are too large"),
        ("in_sum2", np.float32, np.inf, f"sums of squares of what enters {OTHER} are not finite"),
        ("in_sum2", np.float32, -1, f"sums of squares of what enters {OTHER} are negative, -"),
        ("counts", np.float64, np.nan, f"counts of tokens that entered {OTHER} are not finite"),
        ("counts", np.float64, -5, f"counts of tokens that entered {OTHER} are negative, -5"),
        ("hessian_counts", np.float64, np.inf, f"in the Hessian statistics of {OTHER} are not finite"),
        ("shrinkage", np.float32, 1.5, f"Hessian statistics of what enters {OTHER} are shrunk by 1.5"),
        ("shrinkage", np.float32, np.nan, f"Hessian statistics of what enters {OTHER} are shrunk by nan"),
        ("hessian_counts", np.float64, 1e-320, f"Hessian statistics of what enters {OTHER} are not finite"),
    ],
)
def test_values_that_cannot_be(
    model: Path, stats: Path, tmp_path: Path, tensor: str, dtype: type, value: float, says: str
) -> None:
    """Matrices share inputs: either may be named."""
    damaged = tmp_path / "damaged"
    damaged.write_bytes(with_value(stats, f"{MATRIX}.{tensor}", dtype, 0, value))
    mode = make_mode({"mode": "ggml:Q4_0", "hessian": str(damaged)})
    with pytest.raises(ModelFileError) as raised:
        quantize_model(model, tmp_path / "out.gguf", mode, threads=1)
    assert says in str(raised.value).replace(MATRIX, OTHER)
    assert str(raised.value).startswith(f"{damaged}: ")
    assert not (tmp_path / "out.gguf").exists()


def test_statistics_without_tensors(tmp_path: Path) -> None:
    header = _core.Gguf()
    header.set_text("general.type", KEY)
    header.set_u32(f"{KEY}.version", VERSION)
    header.set_u32(f"{KEY}.panel", _core.PANEL)
    path = tmp_path / "stats"
    path.write_bytes(header.header())
    with pytest.raises(ModelFileError, match="has no tensors, so no checksums either"):
        Calibration.read(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_chunks": -1}, "n_chunks: Input should be greater than 0"),
        ({"n_chunks": 10**14}, "n_chunks: Input should be less than 2147483648"),
        ({"weight": 0.0}, "weight: Input should be greater than 0"),
        ({"weight": 1e300}, "weight: Input should be less than or equal to"),
    ],
)
def test_texts_that_cannot_be(stats: Path, tmp_path: Path, change: dict[str, float], says: str) -> None:
    file = ModelFile(stats)
    known = read_header(file)
    texts = [replace(text, **change) for text in known.origin.texts]
    header = metadata_header(replace(known.origin, texts=texts), known.inputs, known.streams, {}, [])
    rewritten(file, header, tmp_path / "damaged")
    with pytest.raises(ModelFileError, match=f"its header is damaged: 0.{says}"):
        Calibration.read(tmp_path / "damaged")


def test_a_residual_stream_that_cannot_be(stats: Path, tmp_path: Path) -> None:
    file = ModelFile(stats)
    known = read_header(file)
    header = metadata_header(known.origin, known.inputs, {MATRIX: -1e9}, {}, [])
    rewritten(file, header, tmp_path / "damaged")
    with pytest.raises(
        ModelFileError, match="its header is damaged: a residual stream of e to more than 100"
    ):
        Calibration.read(tmp_path / "damaged")


def test_tokens_that_cannot_be(stats: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(with_value(stats, "tokens", np.int32, 0, -5))
    with pytest.raises(ModelFileError, match="tokens are negative, -5 among them"):
        Calibration.read(damaged).kept.tokens()


def test_statistics_of_another_width(model: Path, stats: Path, tmp_path: Path) -> None:
    """An importance matrix does not say of which model it is; a Hessian file may be wrong about it."""
    text = model.with_name("text.txt")
    other = replace(SMALL, n_ff=96).write(tmp_path / "other.gguf")
    calibrate_model(other, [text], tmp_path / "stats", n_ctx=64, n_chunks=1, imatrix=tmp_path / "imatrix")
    for known in (Calibration.read(tmp_path / "imatrix"), Calibration.read(tmp_path / "stats")):
        file = ModelFile(model)
        with pytest.raises(
            ModelFileError, match=r"96 columns of tensor 'blk\.0\.ffn_down\.weight', which has 1 x 64"
        ):
            known.check_model(file, known.sha256 or file.sha256())


def rewritten(file: ModelFile, header: _core.Gguf, output: Path) -> None:
    """Write the tensors of a Hessian file behind other metadata, with checksums that fit."""
    tensors = sorted(file.tensors, key=lambda tensor: tensor.offset)[:-1]
    for tensor in tensors:
        header.add_tensor(tensor.name, int(tensor.type), tensor.shape)
    add_checksums(header)
    with OutputFile(output, file_bytes(header), sources=[], force=False) as out:
        rows = RowWriter(out, header)
        for tensor in tensors:
            for number, row in enumerate(np.frombuffer(tensor.data(), np.uint8).reshape(tensor.n_rows, -1)):
                rows.write(tensor.name, number, row)
        rows.finish()
        out.commit()
