"""Messages where memory is not enough, as under `ulimit -v`."""

from __future__ import annotations

import os
from mmap import mmap

from pyquant.errors import PyquantError

# Libraries that are loaded before any work, and what OpenBLAS in two of them takes for each core:
# measured, with some room. Where they cannot have it they end the process themselves.
LIBRARIES = 60 << 20
PER_CORE = 85 << 20
MOST_CORES = 64  # that OpenBLAS takes threads for
RESERVE = 8 << 20  # bytes that are kept for showing a result, or for saying that there are no more

_reserve = mmap(-1, RESERVE)


def check_libraries() -> None:
    """Refuses a limit below what the libraries of every command take. Raises NotEnoughMemory."""
    from pyquant.machine.cpu import n_threads
    from pyquant.machine.memory import require_memory

    cores = min(n_threads(None), MOST_CORES)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if (given := os.environ.get(name, "")).isdigit() and int(given) > 0:
            cores = min(cores, int(given))
    require_memory(LIBRARIES + PER_CORE * cores, "the libraries that pyquant is made of")


def release() -> None:
    """Gives the reserve back: the work is done, and its output written, so showing it must not fail."""
    _reserve.close()


def is_lacking(error: Exception) -> bool:
    """Whether an error of a library or of Python itself comes of a lack of memory."""
    from pyquant.machine.memory import lacks_memory

    return lacks_memory(error)


def message(error: Exception) -> str:
    """Gives the line that says it, and the reserve back: Python itself fails where it has no memory left."""
    release()
    if isinstance(error, PyquantError):
        return said_of(error)
    reason = str(error).partition("\n")[0]
    known = reason and "bad_alloc" not in reason
    return f"not enough memory{f': {reason}' if known else ''}; fewer --threads or smaller chunks take less"


def said_of(error: PyquantError) -> str:
    """Gives an error's own words, after what they come of where llama.cpp says it in C++'s words alone."""
    return f"not enough memory: {error}" if "bad_alloc" in str(error) else str(error)
