"""Recipes: what is read, what is refused, and what they say of a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFWriter

from pyquant.errors import ConfigError
from pyquant.models.header import EQUALIZED_FROM
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.recipe_file import Choice, Recipe, read_recipe
from tests.support.models import EXPERTS, F32, Model

HEAD = 'version = 1\nbase = "Q4_0"\n'
OUTPUT = '[tensors]\n"output.weight" = '


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    recipe = Recipe(
        "Q4_K_M",
        {"a b": Choice(Type.IQ4_NL, 4.5, 0.25, 1.5e-7), "c": Choice(Type.F16)},
        model_sha256="ab" * 32,
        n_bytes=123,
        kld=0.125,
        kld_error=0.0,
    )
    assert read_recipe(written(tmp_path, recipe.to_toml())) == recipe


def test_a_type_alone_is_enough(tmp_path: Path) -> None:
    assert read_recipe(written(tmp_path, HEAD + OUTPUT + '"q8_0"\n')) == Recipe(
        "Q4_0", {"output.weight": Choice(Type.Q8_0)}
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('base = "Q4_0"', "expected version = 1"),
        ("version = 1", "the key 'base' is missing"),
        (HEAD + "bass = 1", "no key 'bass'; known: version, base"),
        (HEAD + "n_bytes = true", "n_bytes: expected a whole number, got True"),
        (HEAD + "kld = -1", "kld: expected a number from 0, got -1"),
        (HEAD + "tensors = 3", "tensors: expected a table"),
        (HEAD + OUTPUT + '"Q9_0"', "output.weight: 'Q9_0' is no type of GGML; known: F32"),
        (HEAD + OUTPUT + "{ bits = 3 }", "output.weight: expected a type, or a table of type and bits"),
        (HEAD + OUTPUT + '{ type = "Q8_0", bit = 3 }', "expected a type, or a table of type and bits"),
        (HEAD + OUTPUT + '{ type = "Q8_0", share = "x" }', "output.weight: share: expected a number"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=f"{path}: .*{says}"):
        read_recipe(path)


@pytest.mark.parametrize(
    ("name", "type_", "says"),
    [
        ("output.weigth", Type.Q8_0, "'output.weigth' is no tensor of .*; did you mean 'output.weight'?"),
        ("output_norm.weight", Type.Q8_0, "cannot become Q8_0: llama.cpp keeps its type F32"),
        ("output.weight", Type.Q4_K, "do not divide rows of 64 weights; for these there are .*Q8_0"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(generated, name: str, type_: Type, says: str) -> None:
    with pytest.raises(ConfigError, match=f"here: .*{says}"):
        Recipe("Q4_0", {name: Choice(type_)}).types_for(ModelFile(generated(F32)), "here")


def test_a_part_of_a_hash_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('version = 1\nbase = "Q4_0"\nmodel_sha256 = "1f6e84"\n')
    with pytest.raises(ConfigError, match=r"recipe\.toml: model_sha256: expected all 64 .*, got '1f6e84'"):
        read_recipe(path)


def test_a_recipe_is_for_one_model(generated) -> None:
    model = ModelFile(generated(F32))
    types = {"output.weight": Choice(Type.Q8_0)}
    Recipe("Q4_0", types, model_sha256=model.sha256()).types_for(model, "here")
    Recipe("Q4_0", types).types_for(ModelFile(generated(EXPERTS)), "here")
    with pytest.raises(ConfigError, match=r"here: is for another model than .*, this one's with"):
        Recipe("Q4_0", types, model_sha256=model.sha256()).types_for(ModelFile(generated(EXPERTS)), "here")


def test_a_recipe_is_for_the_equalized_file_of_its_model_too(tmp_path: Path) -> None:
    class Equalized(Model):
        def add_metadata(self, writer: GGUFWriter) -> None:
            super().add_metadata(writer)
            writer.add_string(EQUALIZED_FROM, "ab" * 32)

    model = ModelFile(Equalized().write(tmp_path / "model.gguf"))
    types = {"output.weight": Choice(Type.Q8_0)}
    for sha256 in ("ab" * 32, model.sha256()):
        assert Recipe("Q4_0", types, sha256).types_for(model, "here") == {"output.weight": Type.Q8_0}
    with pytest.raises(ConfigError, match="here: is for another model than"):
        Recipe("Q4_0", types, "cd" * 32).types_for(model, "here")
