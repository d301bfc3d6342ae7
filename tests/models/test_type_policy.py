"""Types by rule: llama-quantize's, for every architecture and every number of layers that has a rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import ask_llama
from pyquant.schemes.ggml_type import CHOICES
from tests.support.headers import Header, architectures, layer_counts
from tests.support.stock_types import StockPlanner

# Parts of a sweep that processes share.
PARTS = 16
# What the vendored llama.cpp takes for the 70 B class, whose attn_v gets more bits: llama.cpp issue 9005.
CLASS_70B = {"llama": 80, "qwen2": 80, "deci": 80, "olmo": 80, "jais2": 68}


@pytest.fixture(scope="module")
def stock(oracle) -> Iterator[StockPlanner]:
    with StockPlanner(oracle.folder) as planner:
        yield planner


def planned(path: Path, file_type: int, *, pure: bool, imatrix: bool) -> dict[str, str] | str:
    """The types by tensor, or the refusal."""
    model = ModelFile(path)
    try:
        types = ask_llama(model, model.tensors, file_type, pure=pure, has_importance=imatrix)
    except ModelFileError as error:
        return str(error)
    return {tensor.name: Type(type_).name for tensor, type_ in zip(model.tensors, types)}


def compare(
    stock: StockPlanner, path: Path, file_type: int, *, pure: bool = False, imatrix: bool = False
) -> bool:
    """Compare what both plan of a file. Returns: whether they take it."""
    theirs = stock.plan(path, file_type, pure=pure, imatrix=imatrix)
    ours = planned(path, file_type, pure=pure, imatrix=imatrix)
    if isinstance(ours, str):
        aborted = theirs.error == "aborted" and ("GGML_ASSERT" in ours or "fatal error" in ours)
        assert aborted or (theirs.error and theirs.error in ours), (path.name, theirs.error, ours)
        return False
    assert ours == theirs.types, (path.name, file_type, pure, imatrix)
    return True


@pytest.mark.parametrize("name", CLASS_70B)
def test_the_70b_class_gets_more_bits_for_attn_v(tmp_path: Path, name: str) -> None:
    """llama.cpp's rule takes Q5_K where others get Q3_K or Q4_K."""
    n_layer = CLASS_70B[name]
    for layers, wanted in ((n_layer, "Q5_K"), (n_layer - 1, "Q3_K"), (n_layer + 1, "Q3_K")):
        header = Header(name, layers, n_head_kv=2, kinds=("attn_v",))
        types = planned(header.write(tmp_path / "m.gguf"), CHOICES["Q3_K_S"], pure=False, imatrix=False)
        assert not isinstance(types, str), types
        assert types["blk.40.attn_v.weight"] == wanted


@pytest.mark.oracle
def test_every_mixture_of_the_70b_class(tmp_path: Path, stock: StockPlanner) -> None:
    for name, n_layer in CLASS_70B.items():
        header = Header(name, n_layer, n_head_kv=2, kinds=("attn_v", "ffn_down"))
        path = header.write(tmp_path / f"{name}.gguf")
        for file_type, pure, imatrix in itertools.product(CHOICES.values(), (False, True), (False, True)):
            assert compare(stock, path, file_type, pure=pure, imatrix=imatrix)


@pytest.mark.oracle
def test_every_architecture(tmp_path: Path, stock: StockPlanner) -> None:
    """Each in one shape, with mixtures that go round."""
    mixtures = itertools.cycle(CHOICES.values())
    shapes = itertools.cycle([(8, 0, False), (2, 0, True), (8, 8, False), (2, 4, False)])
    taken = 0
    for name in architectures():
        n_head_kv, n_expert, tied = next(shapes)
        header = Header(name, 16, n_head_kv=n_head_kv, n_expert=n_expert, tied=tied)
        path = header.write(tmp_path / f"{name}.gguf")
        taken += all(compare(stock, path, next(mixtures), imatrix=imatrix) for imatrix in (False, True))
        path.unlink()
    assert taken > 0.9 * len(architectures())


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("part", range(PARTS))
def test_every_number_of_layers(tmp_path: Path, stock: StockPlanner, part: int) -> None:
    """Rules ask for the number of layers, heads and experts: all mixtures of one, some of all."""
    for name in architectures()[part::PARTS]:
        sweep(tmp_path, stock, name)


def sweep(tmp_path: Path, stock: StockPlanner, name: str) -> None:
    mixtures = itertools.cycle(itertools.product(CHOICES.values(), (False, True)))
    for n_layer in layer_counts():
        header = Header(name, n_layer, n_head_kv=2, kinds=("attn_v", "ffn_down"))
        path = header.write(tmp_path / "layers.gguf")
        for file_type in (CHOICES["Q3_K_S"], CHOICES["Q4_K_M"]):
            if not compare(stock, path, file_type, imatrix=True):
                break  # a header that is refused is refused for all mixtures
    for n_head_kv, n_expert, tied in itertools.product((8, 2), (0, 3, 4, 8), (False, True)):
        header = Header(name, 8, n_head_kv=n_head_kv, n_expert=n_expert, tied=tied, n_embd=256)
        path = header.write(tmp_path / "shapes.gguf")
        for file_type, imatrix in itertools.islice(mixtures, 13):  # all of them come after some shapes
            if not compare(stock, path, file_type, imatrix=imatrix):
                break
    path = Header(name, 2, n_embd=96).write(tmp_path / "rows.gguf")  # which few blocks divide
    for file_type, pure in itertools.product(CHOICES.values(), (False, True)):
        if not compare(stock, path, file_type, pure=pure):
            break
