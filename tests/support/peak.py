"""Measure the memory of a comparison, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

VOCABULARY = 200  # bytes that llama.cpp keeps of each of a model's tokens, about 130, and more

# The C library's allocator keeps some of the memory that is freed, more in some runs than in others. It gives
# back blocks that are mappings of their own, as those of a MiB and more are here.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}

# Peak: of all memory, mapped files included, since the models were loaded for the first time; what the
# process had before that is no matter of the comparison.
MEASURE = """
import json, sys
from pyquant.evaluate.compare import compare_models, compare_texts
from pyquant.files.text import NamedText, read_text
from pyquant.llama.cache_types import CacheTypes
from pyquant.machine.memory import forget_peak, peak_memory

base, *candidates = sys.argv[4:]
options = json.loads(sys.argv[2])
caches = [CacheTypes(*pair) for pair in options.pop("caches")]
texts = [NamedText("text", read_text(sys.argv[1]))]
compare_models(sys.argv[3], [], sys.argv[1], n_ctx=8, n_chunks=1, threads=1)
forget_peak()
before = peak_memory()
compare_texts(base, candidates, texts, caches=caches, **options)
print(json.dumps(peak_memory() - before))
"""


def peak(
    models: Sequence[Path],
    text: Path,
    tiny: Path,
    n_ctx: int,
    n_chunks: int,
    *,
    caches: Sequence[tuple[str, str]] = (),
    every_position: bool = False,
) -> int:
    """Bytes that comparing the models adds to what a process takes that has already compared."""
    options = {"n_ctx": n_ctx, "n_chunks": n_chunks, "threads": 1, "caches": caches}
    options["every_position"] = every_position
    words = [sys.executable, "-c", MEASURE, text, json.dumps(options), tiny, *models]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)
