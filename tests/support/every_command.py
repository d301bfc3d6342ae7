"""Arguments that each command which prints JSON takes, and a folder with what they name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.card import compare
from tests.support.command import run
from tests.support.costs import write_costs
from tests.support.questions import write_winogrande

BASE = {"model": "model.gguf", "perplexity": 19.5, "perplexity_error": 0.5}
TABLE = "values = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]\n"


@pytest.fixture(scope="module")
def command_folder(generated: Callable[[str], Path], stats_of, text: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    for name in ("model.gguf", "other.gguf"):
        (folder / name).symlink_to(generated("f32, rows of 64 and 96"))
    (folder / "stats.gguf").symlink_to(stats_of("f32, rows of 64 and 96"))
    (folder / "text.txt").symlink_to(text)
    (folder / "table.toml").write_text(TABLE)
    (folder / "types.txt").write_text("attn_v=q8_0")
    (folder / "prompts.jsonl").write_text('{"prompt": "the"}\n')
    write_winogrande(folder / "questions.csv", 2)
    (folder / "kld.json").write_text(json.dumps(compare(["model.pqz"]) | {"base": BASE}))
    write_costs(folder / "costs.json", (folder / "model.gguf", folder / "other.gguf"))
    made = run("pack", "model.gguf", "model.pqz", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


PROMPTS = ["--prompts", "prompts.jsonl", "--max-tokens", "4"]
EVALUATION = ["--text", "text.txt", "--ctx", "64", "--chunks", "2"]
RESULTS = {
    "quantize": ["model.gguf", "q4_0.gguf", "--mode", "q4_0"],
    "histogram": ["model.gguf", "--mode", "q4_0"],
    "calibrate": ["model.gguf", *EVALUATION, "-o", "new.gguf"],
    "equalize": ["model.gguf", "equalized.gguf", "--hessian", "stats.gguf"],
    "sensitivity": ["model.gguf", "--hessian", "stats.gguf", *EVALUATION, "-o", "sensitivity.toml"],
    "mix": ["model.gguf", "--hessian", "stats.gguf", *EVALUATION, "--target-bpw", "6", "-o", "mix.toml"],
    "recipe": ["model.gguf", "types.txt"],
    "perplexity": ["model.gguf", *EVALUATION],
    "compare": ["model.gguf", "other.gguf", *EVALUATION],
    "accuracy": ["model.gguf", "other.gguf", "--winogrande", "questions.csv"],
    "card": ["kld.json", "-o", "README.md"],
    "error": ["model.gguf", "other.gguf"],
    "speed": ["model.gguf", "--prompt", "8", "--generate", "2", "--rounds", "1"],
    "generate": ["model.gguf", "-p", "the", "--max-tokens", "4"],
    "draft costs": ["model.gguf", "other.gguf", "--rounds", "1"],
    "draft run": [
        "model.gguf",
        "other.gguf",
        "--prompts",
        "prompts.jsonl",
        "--max-tokens",
        "4",
        "--turns",
        "1",
    ],
    "structured": ["model.gguf", "-n", "1", "--length", "2", "--technique", "free"],
    "draft search": ["model.gguf", "other.gguf", *PROMPTS, "--costs", "costs.json", "--policy", "static"],
    "pack": ["model.gguf", "again.pqz"],
    "unpack": ["model.pqz", "again.gguf"],
    "dequantize": ["model.gguf", "f16.gguf"],
    "info": ["model.gguf"],
    "tables list": [],
    "tables show": ["basic"],
    "tables check": ["table.toml"],
    "tables build": ["model.gguf", "-o", "balanced.toml"],
    "tables learn": ["model.gguf", "-o", "learned.toml"],
}
