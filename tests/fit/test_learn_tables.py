"""Learned tables: the clustering, what it is fed with, and what comes of it."""

from __future__ import annotations

import math
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyquant import _core
from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ConfigError, ModelFileError
from pyquant.fit import learn_tables as learn
from pyquant.fit.learn_tables import best_values, learn_tables
from pyquant.inspect.error_map import measure_error
from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.schemes.table_set import TableSet, read_table_set
from tests.support.blocks import sample_blocks
from tests.support.command import run
from tests.support.models import Model
from tests.twins import scale_search as twin

N_BINS = 256 * _core.BINS_PER_LEVEL
AT = (np.arange(N_BINS) + 0.5) / _core.BINS_PER_LEVEL - 128  # the middles of bins
QUERIES = "blk.0.attn_q.weight"


def cost(positions: np.ndarray, values: np.ndarray) -> float:
    """Cost of every bin's weight going to its nearest value."""
    values = np.asarray(values, float)
    bounds = (values[1:] + values[:-1]) / 2
    return float((positions * np.square(AT - values[np.searchsorted(bounds, AT)])).sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_codes", [2, 3, 4])
def test_the_best_values_are_those_of_brute_force(monkeypatch, n_codes: int, seed: int) -> None:
    monkeypatch.setattr(learn, "LEVELS", np.arange(-6, 7))
    monkeypatch.setattr(learn, "N_CODES", n_codes)
    rng = np.random.default_rng(seed)
    positions = rng.exponential(size=N_BINS) ** 6 * (np.abs(AT) < 9)
    found = best_values(positions)
    best = min(cost(positions, values) for values in combinations(range(-6, 7), n_codes))
    assert cost(positions, found) == pytest.approx(best, rel=1e-9)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_no_move_of_values_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = rng.uniform(5, 80)
    positions = np.exp(-np.abs(AT - rng.uniform(-30, 30)) / width) * rng.exponential(size=N_BINS) ** 2
    found = best_values(positions)
    assert found.dtype == np.int8
    assert (np.diff(found.astype(int)) > 0).all()
    best = cost(positions, found)
    for _ in range(200):
        moved = np.unique(np.clip(found + rng.integers(-2, 3, 16) * (rng.random(16) < 0.3), -127, 127))
        assert cost(positions, moved) >= best * (1 - 1e-9)


@settings(max_examples=10)
@given(st.lists(st.integers(-127, 127), min_size=16, max_size=16, unique=True).map(sorted))
def test_known_centers_are_found(centers: list[int]) -> None:
    positions = np.zeros(N_BINS)
    positions[(np.array(centers) + 128) * _core.BINS_PER_LEVEL] = np.arange(1, 17)
    assert best_values(positions).tolist() == centers


def test_weights_of_a_single_value_give_a_table_that_has_it() -> None:
    for at, value in ((0, -127), (N_BINS // 2, 0), (N_BINS - 1, 127)):
        positions = np.zeros(N_BINS)
        positions[at] = 1
        found = best_values(positions)
        assert value in found
        assert len(np.unique(found)) == 16
    assert len(np.unique(best_values(np.zeros(N_BINS)))) == 16


def found_positions(x: np.ndarray, w: np.ndarray, values: np.ndarray, n_threads: int = 1) -> np.ndarray:
    file = os.memfd_create("weights")
    try:
        os.pwrite(file, x.tobytes(), 0)
        return _core.find_positions(
            in_file=file, in_offset=0, n_rows=len(x), n_per_row=x.shape[1],
            source=_core.ggml_decoder(int(Type.F32)), weights=w, values=values, n_threads=n_threads,
        )  # fmt: skip
    finally:
        os.close(file)


@pytest.mark.parametrize("n_rows", [1, 16, 37])
def test_positions_equal_their_twin(n_rows: int) -> None:
    x = sample_blocks(8 * n_rows).reshape(n_rows, 256)
    x[::3] = np.random.default_rng(0).laplace(size=x[::3].shape)
    w = np.random.default_rng(1).exponential(size=256).astype(np.float32)
    got = found_positions(x, w, IQ4_NL_VALUES)
    np.testing.assert_allclose(got, twin.find_positions(x, w, IQ4_NL_VALUES), rtol=1e-12)


def test_positions_do_not_depend_on_threads() -> None:
    x = np.random.default_rng(0).laplace(size=(5000, 256)).astype(np.float32)
    w = np.ones(256, np.float32)
    expected = found_positions(x, w, IQ4_NL_VALUES)
    np.testing.assert_array_equal(found_positions(x, w, IQ4_NL_VALUES, n_threads=3), expected)


def skewed(name: str, x: np.ndarray) -> np.ndarray:
    """Weights of kinds that want different tables."""
    return np.exp(12 * x) / 16 if "ffn" in name else np.sign(x) * np.abs(x) ** 0.3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    return Model(n_embd=64, n_ff=96, n_layer=2, change=skewed, seed=9).write(path)


@pytest.fixture(scope="module")
def stats(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stats") / "stats.gguf"
    calibrate_model(model, [text], path, n_ctx=64, n_chunks=8, imatrix=path.with_name("imatrix.gguf"))
    return path


def snr_db(model: Path, tables: TableSet, folder: Path, imatrix: Path | None = None) -> float:
    """Signal to noise of a model rounded to tables by the same search of scales, weighted by an imatrix."""
    (folder / "tables.toml").write_text(tables.to_toml())
    settings = {"mode": "table", "table": str(folder / "tables.toml"), "tensors": "blk"}
    settings |= {"hessian": str(imatrix)} if imatrix else {}
    quantize_model(model, folder / "out.gguf", make_mode(settings), force=True)
    found = measure_error(model, folder / "out.gguf", imatrix=imatrix).to_json()["tensors"]
    key = "weighted_snr_db" if imatrix else "snr_db"
    return float(np.mean([one[key] for one in found if "blk" in one["name"] and one[key] is not None]))


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_tables_of_kinds_err_less_where_kinds_differ(
    model: Path, stats: Path, tmp_path: Path, weighted: bool
) -> None:
    imatrix = stats.with_name("imatrix.gguf") if weighted else None
    before = snr_db(model, TableSet("IQ4_NL", IQ4_NL_VALUES), tmp_path, imatrix)
    for per in ("kind", "tensor"):
        tables = learn_tables(model, per=per, hessian=stats if weighted else None)
        assert snr_db(model, tables, tmp_path, imatrix) > before + 3


def test_one_table_errs_less_where_weights_are_alike(text: Path, tmp_path: Path) -> None:
    even = Model(n_embd=64, n_ff=96, change=lambda name, x: np.sign(x) * np.sqrt(np.abs(x))).write(
        tmp_path / "even.gguf"
    )
    before = snr_db(even, TableSet("IQ4_NL", IQ4_NL_VALUES), tmp_path)
    assert snr_db(even, learn_tables(even), tmp_path) > before + 0.3


def test_a_tensor_counts_by_its_relative_error(tmp_path: Path) -> None:
    def table(factor: float) -> np.ndarray:
        def change(name: str, x: np.ndarray) -> np.ndarray:
            return np.float32(factor) * skewed("ffn", x) if name.startswith("blk.1.") else skewed("", x)

        return learn_tables(Model(change=change).write(tmp_path / f"{factor}.gguf"), per="kind").of(QUERIES)

    np.testing.assert_array_equal(table(128), table(1))


def test_tables_get_better_in_rounds(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = snr_db(model, learn_tables(model), tmp_path)
    monkeypatch.setattr(learn, "ROUNDS", 1)
    assert found > snr_db(model, learn_tables(model), tmp_path) + 0.1


@pytest.mark.parametrize("per", ["model", "kind", "tensor"])
def test_tables_survive_their_file(model: Path, per: str, tmp_path: Path) -> None:
    tables = learn_tables(model, per=per)
    (tmp_path / "t.toml").write_text(tables.to_toml())
    again = read_table_set(tmp_path / "t.toml")
    assert again.name == tables.name == f"learned per {per}"
    names = [f"blk.{i}.{kind}.weight" for i in range(2) for kind in ("attn_q", "ffn_down")]
    for name in names:
        np.testing.assert_array_equal(again.of(name), tables.of(name))
        assert again.of(name).dtype == np.int8
    apart = {"model": [], "kind": [kind_of(names[0])], "tensor": names[:1]}[per]
    assert set(apart) <= set(again.by_name)
    n_tables = len({tuple(again.of(name).tolist()) for name in names})
    assert n_tables == {"model": 1, "kind": 2, "tensor": 4}[per]


def test_threads_do_not_change_tables(model: Path, stats: Path) -> None:
    one, three = (learn_tables(model, hessian=stats, per="kind", threads=n) for n in (1, 3))
    assert one.to_toml() == three.to_toml()


def test_progress_is_told_and_stops_it(model: Path) -> None:
    told: list[tuple[int, int]] = []
    learn_tables(model, progress=lambda done, total, name: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1] > 0

    def interrupt(done: int, total: int, name: str) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_tables(model, progress=interrupt)


def test_models_that_no_table_can_be_learned_for(model: Path, stats: Path, tmp_path: Path) -> None:
    quantize_model(model, tmp_path / "q8_0.gguf", make_mode({"mode": "q8_0"}))
    with pytest.raises(ConfigError, match=r"q8_0\.gguf: has no tensors that a table could be learned for"):
        learn_tables(tmp_path / "q8_0.gguf")
    other = Model(n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2).write(tmp_path / "other.gguf")
    with pytest.raises(ModelFileError, match="made from another model than"):
        learn_tables(other, hessian=stats)

    def broken(name: str, x: np.ndarray) -> np.ndarray:
        if name == "blk.1.ffn_up.weight":
            x[3, 5] = math.nan
        return x

    Model(change=broken).write(tmp_path / "broken.gguf")
    with pytest.raises(ModelFileError, match=r"blk\.1\.ffn_up\.weight.*nan"):
        learn_tables(tmp_path / "broken.gguf")


VALUES = f"values = {IQ4_NL_VALUES.tolist()}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("values = [", "t.toml"),
        ("", "the key 'values' is missing"),
        ("values = [1, 2]", "values: expected 16"),
        ("values = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]", "values: expected 16"),
        (VALUES.replace("113", "128"), "values: expected 16"),
        (VALUES + "vlues = 3", "unknown key 'vlues'"),
        (VALUES + "tables = 3", "tables: expected a table of tables"),
        (VALUES + "[tables]\nattn_q = [1, 2]", r"tables\.attn_q: expected 16"),
        (VALUES + "[tables]\nattn_q = 'basic'", r"tables\.attn_q: expected 16"),
    ],
)
def test_files_that_hold_no_tables(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        read_table_set(str(tmp_path / "t.toml"))
    assert "t.toml" in str(raised.value)


@pytest.mark.ci
def test_the_command(model: Path, stats: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables.toml"
    told = run("tables", "learn", model, "--per", "kind", "--hessian", stats, "-o", out)
    assert told.returncode == 0, told.stderr
    assert out.read_text() == learn_tables(model, per="kind", hessian=stats).to_toml()
    told = run("tables", "learn", model, "-o", out)
    assert (told.returncode, told.stdout) == (1, "")
    assert "--force" in told.stderr
    told = run("tables", "learn", model, "--per", "layer")
    assert (told.returncode, told.stdout) == (2, "")
    assert "'layer' is not one of 'model', 'kind', 'tensor'" in told.stderr


@pytest.mark.parametrize("per", ["model", "kind", "tensor"])
def test_a_matrix_of_zeros_says_nothing(per: str, tmp_path: Path) -> None:
    def no_values(name: str, x: np.ndarray) -> np.ndarray:
        return 0 * x if "attn_v" in name else skewed(name, x)

    model = Model(n_embd=64, n_ff=96, n_layer=1, change=no_values, seed=9).write(tmp_path / "model.gguf")
    learned = learn_tables(model, per=per)
    assert len(np.unique(learned.values)) == 16
    if per == "tensor":
        np.testing.assert_array_equal(learned.by_name["blk.0.attn_v.weight"], IQ4_NL_VALUES)


def test_a_weight_that_is_not_finite_is_found_in_its_row(tmp_path: Path) -> None:
    def broken(name: str, x: np.ndarray) -> np.ndarray:
        return (
            np.where(np.arange(x.size).reshape(x.shape) == 64 * 40 + 3, np.nan, x) if "attn_q" in name else x
        )

    model = Model(n_layer=1, change=broken).write(tmp_path / "model.gguf")
    with pytest.raises(ModelFileError, match=r"attn_q\.weight', weight \[3, 40\]"):
        learn_tables(model)
