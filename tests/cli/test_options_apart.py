"""Options that say nothing beside others are refused, not passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("compare M --text T -ctk q4_0 --shares", "--shares: is of models beside the base; give one"),
        ("recipe M R --base Q4_0", "--base: is of TYPES.txt"),
        ("recipe M R --force", "--force: replaces an output; give one with -o"),
        (
            "quantize M out.gguf Q4_0 --recipe R",
            "--recipe: is not for a type or a size; drop it, or drop that",
        ),
        ("quantize M out.gguf --recipe R --method gptq", "drop it, or give TYPE and no mode"),
        ("quantize M out.gguf Q4_0 --method gptq --text - --text -", "'-': standard input is named twice"),
        ("generate M -p a --regex a --exact --parallel 8", "give no --parallel"),
        ("generate M -p a --draft ngram --costs R", "--costs: are of --policy expected_value"),
        ("structured M --task c_function --technique free --engine x", "engine: expected one of llguidance"),
        (
            "perplexity M --text T --main-gpu 3",
            "--main-gpu, --tensor-split: are of --gpu-layers; give it too",
        ),
    ],
)
def test_what_would_say_nothing_is_refused(
    arguments: str, says: str, small_model: Path, text: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('version = 1\nbase = "Q4_0"\n[tensors]\n')
    words = {"M": small_model, "T": text, "R": recipe}
    refused = run(*(words.get(word, word) for word in arguments.split()), cwd=tmp_path, input="a text")
    assert refused.returncode in (1, 2)
    said = " ".join(refused.stderr.split())
    assert said.endswith(says) or f"{says};" in said or f"{says}," in said
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


def test_a_dry_run_to_pqz_says_what_it_knows(generated: Callable[[str], Path], tmp_path: Path) -> None:
    model = generated("f32, rows of 64 and 96")
    command = ["quantize", model, tmp_path / "out.pqz", "--mode", "q4_0", "--dry-run"]
    said = json.loads(run(*command, "--json").stdout)
    assert (said["output_bytes"], said["bits_per_weight"]) == (None, None)
    assert 0 < said["expanded_bytes"] < model.stat().st_size
    assert "size, expanded" in run(*command).stdout
