"""Time the preparation of a grammar's masks: `python -m benchmarks.grammar_preparation MODEL ENGINE FILE`.

Prints JSON: seconds to prepare it, of engine `lr` also from its cache, and the peak of memory beyond what
the process had before.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from benchmarks.grammar import grammar_for, only_vocabulary
from pyquant.generation.grammar.engines import make_engine
from pyquant.machine.caches import CACHE


def main() -> None:
    path, engine, file = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    import_module(f"pyquant.generation.grammar.{engine}_engine")
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = folder
        result = prepare(path, engine, file)
        if engine == "lr":
            result["load_s"] = min(prepare(path, engine, file)["prepare_s"] for _ in range(3))
        json.dump(result, sys.stdout)


def prepare(path: Path, engine: str, file: Path) -> dict[str, float]:
    """Measure from a vocabulary of which nothing was asked yet to the state before the first token."""
    with only_vocabulary(path) as vocabulary:
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        begin = time.process_time()  # others work on the machine as well
        start = make_engine(engine, vocabulary).compile(grammar_for(engine, file)).start()
        seconds = time.process_time() - begin
        assert not start.must_end
        return {"prepare_s": seconds, "peak_mb": (memory("VmHWM") - before) / 1e6}


def memory(field: str) -> int:
    found = re.search(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
