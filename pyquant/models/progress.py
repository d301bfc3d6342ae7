"""Say how far a pass over a file is."""

from __future__ import annotations

from collections.abc import Callable

# Called with the bytes done, the bytes of all, and the name of the tensor at work ("" if there is none).
Progress = Callable[[int, int, str], None]
