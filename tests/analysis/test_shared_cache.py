"""What a draft gains by taking its target's keys and values."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from analysis import shared_cache
from pyquant import data
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode


def test_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    draft, prompts = tmp_path / "q4_0.gguf", tmp_path / "prompts.jsonl"
    quantize_model(data.model_path(), draft, make_mode({"mode": "q4_0"}), threads=1)
    texts = ["import os\n", "def main("]
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    arguments = ["--prompts", str(prompts), "--turns", "1", "--max-tokens", "48", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["shared_cache", str(data.model_path()), str(draft), *arguments])
    shared_cache.main()
    name, own, _, taken, _, suits, _ = [
        cell.strip() for cell in capsys.readouterr().out.splitlines()[2].split("|")[1:]
    ]
    assert (name, suits) == ("q4_0.gguf", "yes")
    assert 0.3 < float(own) <= 1
    assert 0.3 < float(taken) <= 1
