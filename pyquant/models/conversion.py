"""What commands that make one file of another share: sources that are kept, a clock, and a result."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pyquant.files.output_file import check_output


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A file that was made of another.

    Attributes
    ----------
    source, output
        Paths.
    source_bytes, output_bytes
        Sizes of whole files.
    seconds
        What it took.
    """

    SCHEMA: ClassVar[str]

    source: str
    output: str
    source_bytes: int
    output_bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Give the result as its command prints it with --json."""
        return {"schema": self.SCHEMA, **asdict(self)}


Result = TypeVar("Result", bound=Converted)


class Conversion:
    """Times a conversion, and refuses at its beginning an output that may not be written."""

    def __init__(self, sources: Sequence[Path], output: str | os.PathLike[str], *, force: bool) -> None:
        """Begin.

        Parameters
        ----------
        sources
            Files that are read; the result names the first.
        output
            The file to write.
        force
            Replace an existing `output`.

        Raises
        ------
        OutputError
        """
        self._begin = time.perf_counter()
        self.sources, self.output = list(sources), Path(output)
        check_output(self.output, sources=self.sources, force=force)

    def result(self, of: type[Result], *, source_bytes: int, output_bytes: int, **more: Any) -> Result:
        """End, and make the result. more: what `of` has beside what all results have."""
        return of(
            source=str(self.sources[0]),
            output=str(self.output),
            source_bytes=source_bytes,
            output_bytes=output_bytes,
            seconds=time.perf_counter() - self._begin,
            **more,
        )
