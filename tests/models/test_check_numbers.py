"""Numbers of a model that llama.cpp asserts: it ended the process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from gguf import GGUFWriter

from pyquant.errors import ModelFileError
from pyquant.llama.model import Model as LlamaModel
from pyquant.models.model_file import ModelFile
from pyquant.models.type_policy import quantizable
from tests.support.models import Model


@dataclass(frozen=True)
class Numbered(Model):
    """A model with another number in its metadata, which may be one that it has already."""

    key: str = ""
    value: int | str = 0

    def add_to(self, writer: GGUFWriter) -> None:
        super().add_to(writer)
        (values,) = writer.kv_data
        values.pop(f"llama.{self.key}", None)
        add = writer.add_string if isinstance(self.value, str) else writer.add_uint32
        add(f"llama.{self.key}", self.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 513),
        ("nextn_predict_layers", 3),
        ("expert_count", 1025),
        ("expert_used_count", 0),
        ("expert_used_count", 4),
        ("expert_group_count", 3),
        ("rope.scaling.type", "wide"),
    ],
)
def test_they_are_refused(tmp_path: Path, key: str, value: int | str) -> None:
    path = Numbered(n_layer=2, n_expert=3, key=key, value=value).write(tmp_path / "m.gguf")
    for opened in (LlamaModel, lambda path: quantizable(ModelFile(path))):
        with pytest.raises(ModelFileError) as raised:
            opened(path)
        assert str(raised.value) == f"{path}: llama.{key} is {value!r}, of which llama.cpp can run no model"


@pytest.mark.parametrize(("key", "value"), [("expert_used_count", 1), ("expert_group_count", 1)])
def test_numbers_of_experts_without_experts(tmp_path: Path, key: str, value: int) -> None:
    with pytest.raises(ModelFileError, match=f"llama.{key} is {value}, of which"):
        LlamaModel(Numbered(key=key, value=value).write(tmp_path / "m.gguf"))


@pytest.mark.parametrize("scaling", ["none", "linear", "yarn"])
def test_sound_numbers_run(tmp_path: Path, scaling: str) -> None:
    path = Numbered(n_expert=3, key="rope.scaling.type", value=scaling).write(tmp_path / "m.gguf")
    with LlamaModel(path) as model:
        assert model.vocabulary.n_tokens > 0


@dataclass(frozen=True)
class OtherKind(Model):
    """A file whose general.type is another than that of a model."""

    general_type: str = ""

    def add_to(self, writer: GGUFWriter) -> None:
        super().add_to(writer)
        writer.add_string("general.type", self.general_type)


def test_adapters_are_named(tmp_path: Path) -> None:
    path = OtherKind(general_type="adapter").write(tmp_path / "lora.gguf")
    with pytest.raises(
        ModelFileError, match=r"lora\.gguf: is no model, but an adapter such as LoRA's: merge"
    ):
        LlamaModel(path)
