"""A results folder: results per item beside a run's JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.study.store import Run, Store

RUN = Run("quality", {"model": "m"}, {"model": "a name"})
ITEMS = {"nll": np.arange(4, dtype=np.float32), "rank": np.arange(4, dtype=np.int32)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A folder with one run that has items."""
    with Store(tmp_path / "results") as store:
        store.write_study({})
        store.write(RUN, {"mean": 1.0}, {"host": "here"}, ITEMS)
    return store


def test_a_record_names_its_items(store: Store) -> None:
    record = store.read(RUN.key)
    path = store.items_path(record)
    assert path is not None
    assert path.name == f"{RUN.key}.npz"
    assert record["items"]["n_items"] == 4
    assert record["items"]["columns"] == ["nll", "rank"]
    with np.load(path) as written:
        for name, values in ITEMS.items():
            assert written[name].dtype == values.dtype
            assert (written[name] == values).all()
    assert store.finished() == [RUN.key]
    assert store.problem(RUN.key) is None


def test_the_same_items_make_the_same_bytes(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "again") as again:
        again.write(RUN, {"mean": 1.0}, {"host": "elsewhere"}, ITEMS)
    names = [path.name for path in sorted(again.runs.iterdir())]
    assert names == [f"{RUN.key}.json", f"{RUN.key}.npz"]
    assert (again.runs / names[1]).read_bytes() == (store.runs / names[1]).read_bytes()
    assert again.read(RUN.key)["digest"] == store.read(RUN.key)["digest"]


def test_items_that_changed_or_went_are_found(store: Store) -> None:
    path = store.runs / f"{RUN.key}.npz"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"x")
    assert f"changed since it was written; remove {RUN.key}.json" in str(store.problem(RUN.key))
    path.unlink()
    assert "No such file" in str(store.problem(RUN.key))
