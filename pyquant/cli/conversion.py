"""What commands print that make one file of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyquant.cli.output import print_lines, show, size
from pyquant.cli.progress import progress_bar

if TYPE_CHECKING:
    from pyquant.models.conversion import Converted
    from pyquant.models.progress import Progress

Result = dict[str, Any]


def convert(
    name: str,
    work: Callable[[Progress], Converted],
    as_json: bool,
    lines: Callable[[Result], dict[str, str]] = lambda result: {},
    after: Callable[[Result], None] = lambda result: None,
) -> Result:
    """Run a conversion, show how far it is, print what came of it, and return that as JSON.

    lines: more of the result, first. after: prints what comes below.
    """
    with progress_bar(name) as progress:
        result = work(progress).to_json()

    def show_words(result: Result) -> None:
        before, made, seconds = result["source_bytes"], result["output_bytes"], result["seconds"]
        share = f" ({made / before:.1%})" if made < before else ""
        print_lines(
            {
                **lines(result),
                "size": f"{size(before)} -> {size(made)}{share}",
                "time": f"{seconds:.2f} s ({size(max(before, made) / seconds)}/s)",
                "written to": result["output"],
            }
        )
        after(result)

    show(result, as_json, show_words)
    return result
