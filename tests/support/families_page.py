"""The table of docs/families.md, made of the families themselves.

    python -m tests.support.families_page

puts it into the page. A test compares the page with it.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from gguf import MODEL_ARCH_NAMES

from pyquant.models.model_file import ModelFile
from pyquant.models.treatment import untreated
from tests.support import ROOT
from tests.support.families import FAMILIES
from tests.support.family import SIZES, Family

PAGE = ROOT / "docs/families.md"
TABLE = re.compile(r"^\| family \|.*?\n\n", re.DOTALL | re.MULTILINE)
COLUMNS = [
    "family",
    "architecture",
    "what it has",
    "keeps its type",
]


def page() -> str:
    """The page with the table as it is now."""
    return TABLE.sub(lambda _: table() + "\n", PAGE.read_text())


def table() -> str:
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    with tempfile.TemporaryDirectory() as folder:
        for name, family in FAMILIES.items():
            model = ModelFile(family.write(Path(folder) / "model.gguf"))
            kept = kinds(unit.kind for unit in untreated(model) if unit.what == "quantized")
            architecture = f"`{MODEL_ARCH_NAMES[family.architecture]}`"
            rows.append([name, architecture, ", ".join(features(family)), kept])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def kinds(names) -> str:
    return ", ".join(f"`{name.rpartition('.')[2]}`" for name in names) or "-"


def features(family: Family) -> list[str]:
    """Features that decide about paths through the program, in words."""
    sizes, names = {**SIZES, **family.sizes}, {kind.rpartition(".")[2] for kind in family.kinds()}
    n_head, n_head_kv = sizes["attention.head_count"], sizes["attention.head_count_kv"]
    said = {
        "no attention": not n_head,
        "one head of keys": n_head_kv == 1,
        "grouped queries": 1 < n_head_kv < n_head,
        "heads wider than width / heads": n_head and family.lengths["q"] > sizes["embedding_length"],
        "sliding window": "attention.sliding_window" in sizes,
        "Q, K, V in one matrix": "attn_qkv" in names,
        "gate and up in one matrix": family.shapes.get("ffn_up") == ("ff twice", "width"),
        "norms of Q and K": "attn_q_norm" in names,
        "norms behind blocks": "post_ffw_norm" in names,
        "experts": "expert_count" in sizes,
        "states and convolutions": "ssm_a" in names,
        "biases": bool(family.biases),
        "learned positions": "position_embd" in names,
        "tied embeddings": family.tied,
        "no BOS": family.pairs,
    }
    return [words for words, holds in said.items() if holds]


if __name__ == "__main__":
    PAGE.write_text(page())
