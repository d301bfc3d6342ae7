"""Tables: as printed, balanced, and from TOML."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyquant.errors import ConfigError, ModelFileError
from pyquant.inspect.histogram import code_counts, count_codes
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes import fold_table as tables
from pyquant.schemes.fold_table import N_CODES, Table, balanced, basic, named_table, read_table
from pyquant.schemes.q8_table import q8_table
from pyquant.schemes.settings import make_mode

# Table 4.1.1 of the thesis: first and last 8-bit code of a range, its code, what it decodes to.
PRINTED = [
    (-128, -65, -8, -128),
    (-64, -33, -7, -64),
    (-32, -17, -6, -32),
    (-16, -9, -5, -16),
    (-8, -5, -4, -8),
    (-4, -3, -3, -4),
    (-2, -2, -2, -2),
    (-1, -1, -1, -1),
    (0, 0, 0, 0),
    (1, 1, 1, 1),
    (2, 3, 2, 2),
    (4, 7, 3, 4),
    (8, 15, 4, 8),
    (16, 31, 5, 16),
    (32, 63, 6, 32),
    (64, 127, 7, 64),
]


def test_the_basic_table_is_as_printed() -> None:
    table = basic()
    scheme = q8_table(table)
    for first, last, code, value in PRINTED:
        for grid_code in range(first, last + 1):
            assert int(table.fold[grid_code % 256]) - 8 == code
            assert scheme.folded[grid_code % 256] == value
    assert sum(last - first + 1 for first, last, _, _ in PRINTED) == 256


def by_code(counts: np.ndarray) -> np.ndarray:
    """(256,) counts of codes -128..127 as `balanced` takes them, indexed modulo 256."""
    return np.roll(counts, -128)


def cost(counts: np.ndarray, lower: np.ndarray) -> float:
    """Sum of squared deviations from equal shares; lower: of each range, as an index."""
    sums = np.add.reduceat(counts, lower)
    return float(np.square(sums / counts.sum() - 1 / N_CODES).sum())


COUNTS = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).integers(0, 1000, 256)),
    st.floats(1, 80).map(lambda width: np.round(1e6 * np.exp(-np.abs(np.arange(-128, 128)) / width))),
    # nearly all in a few codes
    st.dictionaries(st.integers(0, 255), st.integers(1, 10**12), min_size=1, max_size=20).map(
        lambda some: np.array([some.get(i, 0) for i in range(256)])
    ),
).map(lambda counts: counts.astype(float))


@given(COUNTS.filter(np.any))
def test_a_balanced_table_is_whole_and_decodes_toward_zero(counts: np.ndarray) -> None:
    table = balanced(by_code(counts))
    assert table.values.dtype == np.int8
    assert table.lower[0] == -128
    assert np.all(np.diff(table.lower) > 0)
    assert np.all(np.diff(table.values.astype(int)) > 0)
    upper = np.append(table.lower[1:] - 1, 127)
    for i in range(1, 15):
        inside = np.arange(table.lower[i], upper[i] + 1)
        assert table.values[i] == inside[np.abs(inside).argmin()]
    assert (table.values[0], table.values[15]) == (-128, 127)


@given(COUNTS.filter(np.any))
def test_no_move_of_bounds_balances_better(counts: np.ndarray) -> None:
    lower = balanced(by_code(counts)).lower.astype(int) + 128
    best = cost(counts, lower)
    rng = np.random.default_rng(0)
    for _ in range(200):
        moved = lower.copy()
        some = rng.integers(1, N_CODES, rng.integers(1, 4))
        moved[some] += rng.integers(-3, 4, len(some))
        moved = np.sort(moved)
        if np.all(np.diff(moved) > 0) and moved[0] == 0 and moved[-1] < 256:
            assert cost(counts, moved) >= best - 1e-15


@pytest.mark.parametrize("seed", range(5))
def test_balanced_equals_brute_force(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(tables, "N_CODES", 4)
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(12, 0.3))

    def deviation(inner: tuple[int, ...]) -> float:
        return float(np.square(np.add.reduceat(shares, [0, *inner]) - 1 / 4).sum())

    found = tables._equal_parts(shares)
    best = min(deviation(inner) for inner in combinations(range(1, 12), 3))
    assert deviation(tuple(found[1:])) == pytest.approx(best, abs=1e-15)


def test_equal_counts_balance_exactly() -> None:
    assert np.diff(balanced(np.ones(256)).lower).tolist() == [16] * 15


@pytest.mark.parametrize("counts", [np.zeros(256), np.ones(255), np.ones((2, 256)), []])
def test_counts_that_make_no_table(counts: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="256 codes"):
        balanced(counts)


ASCENDING = st.lists(st.integers(-128, 127), min_size=16, max_size=16, unique=True).map(sorted)


@given(values=ASCENDING, lower=ASCENDING, name=st.sampled_from(["a name", r"a\q", "\N{SLICE OF PIZZA}"]))
def test_a_table_survives_toml(tmp_path_factory: pytest.TempPathFactory, values, lower, name) -> None:
    lower[0] = -128
    path = tmp_path_factory.mktemp("tables") / "table.toml"
    table = Table(name, np.array(values, np.int8), np.array(lower, np.int16))
    path.write_text(table.to_toml(), encoding="utf-8")
    again = read_table(path)
    assert again.name == table.name
    assert np.array_equal(again.values, table.values)
    assert np.array_equal(again.lower, table.lower)
    assert again.values.dtype == np.int8
    assert np.array_equal(again.fold, table.fold)


@given(ASCENDING)
def test_without_bounds_codes_go_to_the_nearest_value(values: list[int]) -> None:
    lower = tables._nearest(np.array(values))
    fold = np.searchsorted(lower, np.arange(-128, 128), side="right") - 1
    for code in range(-128, 128):
        chosen = values[fold[code + 128]]
        distance = abs(code - chosen)
        assert all(distance <= abs(code - value) for value in values)
        ties = [value for value in values if abs(code - value) == distance]
        assert chosen == min(ties, key=abs) or len({abs(value) for value in ties}) == 1


GOOD = "values = [-128, -64, -32, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, 32, 64]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'values' is missing"),
        ("values = 3", "values: expected 16 integers"),
        ("values = [1, 2]", "values: expected 16 integers"),
        (GOOD.replace("64]", "128]"), "values: expected 16 integers in -128..127"),
        (GOOD.replace("-128", "-129"), "values: expected 16 integers in -128..127"),
        (GOOD.replace("64]", "64.5]"), "values: expected 16 integers"),
        (GOOD.replace("64]", "true]"), "values: expected 16 integers"),
        (GOOD.replace("32, 64", "64, 32"), "each greater than the one before"),
        (GOOD.replace("32, 64", "64, 64"), "each greater than the one before"),
        (GOOD + "lower = [1]", "lower: expected 16 integers"),
        (GOOD + GOOD.replace("values", "lower").replace("-128", "-127"), "begins at -128, not at -127"),
        (GOOD + "valeus = 1", "unknown key 'valeus'; known: name, values, lower"),
        (GOOD + "name = 1", "name: expected up to 64 printable"),
        (GOOD + 'name = ""', "name: expected up to 64 printable"),
        (GOOD + "name = '\"'", "name: expected up to 64 printable"),
        (GOOD + 'name = "a\\nb"', "name: expected up to 64 printable"),
        (GOOD + f'name = "{"x" * 65}"', "name: expected up to 64 printable"),
        ("values = [", "not a readable TOML file"),
        ("\udcff", "not a readable TOML file"),
    ],
)
def test_a_bad_table_file_is_named_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as raised:
        read_table(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


def test_a_table_is_called_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert named_table(str(path)).name == "mine"
    assert np.array_equal(named_table(str(path)).values, basic().values)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("basics", "neither one of basic, balanced nor a .toml file"),
        ("missing.toml", "no such table file"),
        (".", "neither one of"),
    ],
)
def test_a_table_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        named_table(name)


def test_codes_come_from_a_model_or_a_stored_histogram(generated, tmp_path):
    source, stored = generated("f16, rows of 256, grouped queries"), tmp_path / "codes.json"
    quantize_model(source, tmp_path / "q8_0.gguf", make_mode({"mode": "q8_0"}))
    stored.write_text(json.dumps(count_codes(tmp_path / "q8_0.gguf").to_json()))
    counts = code_counts(source)
    assert (counts == code_counts(tmp_path / "q8_0.gguf")).all()
    assert (counts == code_counts(stored)).all()
    quantize_model(source, tmp_path / "folded.gguf", make_mode({"mode": "q8_table", "table": "balanced"}))
    values = ModelFile(tmp_path / "folded.gguf").get("pyquant.table.values")
    assert values == " ".join(map(str, balanced(counts).values))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "pyquant.histogram/2", "totals": []}'])
def test_what_is_no_histogram_is_refused(content, tmp_path):
    (tmp_path / "codes.json").write_text(content)
    with pytest.raises(ModelFileError, match="not a histogram that"):
        code_counts(tmp_path / "codes.json")
