"""Files by recipes are those that llama-quantize makes with --tensor-type-file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.types import choose_types
from pyquant.schemes.recipe_file import Choice, Recipe
from pyquant.schemes.settings import make_mode
from pyquant.schemes.tensor_types import read_tensor_types, to_tensor_types
from tests.support.models import EXPERTS, IN_THE_BOX, ODD_ROWS
from tests.support.oracle import Oracle

# The second pattern finds output.weight as well, but the first counts. Blocks of Q5_K do not divide rows of
# 64. The mixture goes on otherwise beside a tensor that a pattern found.
PATTERNS = "OUTPUT=q8_0 t.weight=q5_0\nblk.0.attn_v=Q5_K token_embd=iq4_nl\n"


def as_recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


@pytest.fixture
def patterns(tmp_path: Path) -> Path:
    path = tmp_path / "types.txt"
    path.write_text(PATTERNS)
    return path


@pytest.mark.oracle
@pytest.mark.parametrize("source", [IN_THE_BOX, EXPERTS, ODD_ROWS], indirect=True)
def test_a_recipe_of_llama_quantizes_types_gives_its_file(
    source: Path, patterns: Path, oracle: Oracle, tmp_path: Path
) -> None:
    recipe = read_tensor_types(patterns, ModelFile(source), "Q4_K_M", has_importance=False)
    mode = make_mode({"mode": "recipe", "recipe": as_recipe(tmp_path, recipe.to_toml())})
    quantize_model(source, tmp_path / "ours.gguf", mode)
    theirs = oracle.quantize(source, tmp_path / "theirs.gguf", "Q4_K_M", "--tensor-type-file", patterns)
    assert (tmp_path / "ours.gguf").read_bytes() == theirs.read_bytes()


# Classes of POSIX, and a pattern that finds only what is never quantized: C++'s expressions take both.
CPP_PATTERNS = r"_norm=q8_0 blk[.][[:digit:]]+[.]attn_[[:alpha:]]+[.]=q5_k (?!blk)^[[:lower:]]+_embd=q6_k"


def test_expressions_are_those_of_cpp(tmp_path: Path, generated) -> None:
    (tmp_path / "types.txt").write_text(CPP_PATTERNS)
    chosen = read_tensor_types(tmp_path / "types.txt", ModelFile(generated(EXPERTS)), "Q4_0").tensors
    types = {name: choice.type.name for name, choice in chosen.items()}
    assert types["blk.0.attn_q.weight"] == "Q5_K"
    assert types["token_embd.weight"] == "Q6_K"
    assert not any("norm" in name for name in types)


@pytest.mark.parametrize("blank", ["\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000"])
def test_words_end_where_those_of_cpp_do(tmp_path: Path, generated, blank: str) -> None:
    """Python's blanks are more than ASCII's: behind them llama-quantize reads on."""
    (tmp_path / "types.txt").write_text(f"attn_q=q8_0\v_embd{blank}|attn_v=q6_k", encoding="utf-8")
    chosen = read_tensor_types(tmp_path / "types.txt", ModelFile(generated(EXPERTS)), "Q4_0").tensors
    assert chosen["blk.0.attn_q.weight"].type.name == "Q8_0"
    assert chosen["blk.0.attn_v.weight"].type.name == "Q6_K"
    assert chosen["token_embd.weight"].type.name != "Q6_K"


@pytest.mark.oracle
def test_expressions_of_cpp_beside_llama_quantize(tmp_path: Path, generated, oracle: Oracle) -> None:
    source, patterns = generated(EXPERTS), tmp_path / "types.txt"
    patterns.write_text(CPP_PATTERNS)
    recipe = read_tensor_types(patterns, ModelFile(source), "Q4_K_M", has_importance=False)
    mode = make_mode({"mode": "recipe", "recipe": as_recipe(tmp_path, recipe.to_toml())})
    quantize_model(source, tmp_path / "ours.gguf", mode)
    theirs = oracle.quantize(source, tmp_path / "theirs.gguf", "Q4_K_M", "--tensor-type-file", patterns)
    assert (tmp_path / "ours.gguf").read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(" * 4000 + ")" * 4000, "a pattern of 8,000 characters; at most 4,096"),
        ("a{99999}" * 9, r"a\{99999\}' is not a regular expression of C\+\+: "),
        ("[z-a]", r"'\[z-a\]' is not a regular expression of C\+\+: "),
        ("*a", r"'\*a' is not a regular expression of C\+\+: "),
        ("a" * 5000, "a pattern of 5,000 characters; at most 4,096"),
        (r"\8", r"'.*8' is not a regular expression of C\+\+: "),
    ],
)
def test_expressions_that_cpp_does_not_take(tmp_path: Path, generated, pattern: str, says: str) -> None:
    (tmp_path / "types.txt").write_text(f"{pattern}=q8_0")
    with pytest.raises(ConfigError, match=says):
        read_tensor_types(tmp_path / "types.txt", ModelFile(generated(EXPERTS)), "Q4_0")


@pytest.mark.oracle
@pytest.mark.parametrize("source", [IN_THE_BOX, EXPERTS], indirect=True)
def test_llama_quantize_makes_the_file_of_a_recipe(source: Path, oracle: Oracle, tmp_path: Path) -> None:
    text = 'version = 1\nbase = "Q4_K_M"\n[tensors]\n"output.weight" = "Q5_K"\n"blk.0.attn_v.weight" = "Q8_0"'
    mode = make_mode({"mode": "recipe", "recipe": as_recipe(tmp_path, text)})
    quantize_model(source, tmp_path / "ours.gguf", mode)
    model = ModelFile(source)
    chosen = choose_types(model, mode).chosen
    types = {tensor.name: chosen[tensor.name] for tensor in model.tensors if len(tensor.shape) > 1}
    (tmp_path / "types.txt").write_text(to_tensor_types(types))
    theirs = oracle.quantize(
        source, tmp_path / "theirs.gguf", "Q4_K_M", "--tensor-type-file", tmp_path / "types.txt"
    )
    assert (tmp_path / "ours.gguf").read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("output", "expected PATTERN=TYPE, got 'output'"),
        ("output=q9", "output: 'q9' is no type of GGML"),
        ("attn_w=q8_0", "'attn_w' finds no tensor of "),
        ("attn_(=q8_0", r"'attn_\(' is not a regular expression"),
    ],
)
def test_patterns_that_are_wrong_are_named(generated, patterns: Path, text: str, says: str) -> None:
    patterns.write_text(text)
    with pytest.raises(ConfigError, match=f"{patterns}: .*{says}"):
        read_tensor_types(patterns, ModelFile(generated(EXPERTS)), "Q4_0")


def test_a_recipe_may_leave_all_matrices_as_floats(generated, tmp_path: Path) -> None:
    """Matrices whose rows no block divides have no part in it."""
    model = ModelFile(generated(ODD_ROWS))
    named = {
        tensor.name: Choice(tensor.type)
        for tensor in model.tensors
        if len(tensor.shape) > 1 and tensor.n_per_row % 32 == 0
    }
    recipe = as_recipe(tmp_path, Recipe("Q4_0", named).to_toml())
    done = quantize_model(model, tmp_path / "out.gguf", make_mode({"mode": "recipe", "recipe": recipe}))
    assert {tensor.type for tensor in done.tensors} == {"F32", "BF16", "F16"}
