"""The table of `pyquant compare`: a group of rows for each text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyquant.cli.compare_caches import print_shares
from pyquant.cli.output import number, print_sentence, print_table, remark, shorten, size

COLUMNS = ("size", "bits", "mean KLD", "99 %", "99.9 %", "max", "same top %", "PPL ratio %")
WIDTH = 100  # characters that the table fits into, whatever the models' names
F16 = ("f16", "f16")
LONGEST_NAME = 24  # characters of a name in a line of words


def print_comparisons(comparisons: Sequence[dict[str, Any]]) -> None:
    """Print models beside their base, on each text."""
    for comparison in comparisons:
        print_comparison(comparison)
    for line in _verdicts(comparisons):
        remark(line)


def print_comparison(result: dict[str, Any]) -> None:
    """Print a text's rows, what the differences of neighbours are, and what is too little to be one."""
    base = result["base"]
    names = short_names([base["model"], *(candidate["file"] for candidate in result["candidates"])])
    rows = [[names[base["model"]], size(base["size"]), f"{base['bits']:.2f}", *[""] * 6]]
    heading = "model"
    print_sentence(_title(result))
    for cache, candidates in _by_cache(result["candidates"]).items():
        if cache != F16:
            rows, heading = [], f"KV {'/'.join(cache)}"
        rows += [[names[candidate["file"]], *_figures(candidate)] for candidate in candidates]
        print_table([heading, *COLUMNS], rows, width=WIDTH)
        labels = {candidate["model"]: names[candidate["file"]] for candidate in candidates}
        for line in _differences(result["paired"], candidates, labels):
            print_sentence(line)
    print_shares(result.get("shares", []), names, WIDTH)


def _by_cache(candidates: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Group candidates by the types of their cache: F16 first, with which the base is run at least."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {F16: []}
    for candidate in candidates:
        cache = candidate["cache_type_k"], candidate["cache_type_v"]
        groups.setdefault(cache, []).append(candidate)
    return groups


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Name models by their files, without .gguf, and by their paths where two files have the same name."""
    names = {model: Path(model).name.removesuffix(".gguf") for model in models}
    often = Counter(names.values())
    return {model: name if often[name] == 1 else model for model, name in names.items()}


def _rounded_up(kld: float) -> str:
    """Give the next power of ten: of noise no more is known, and nothing where sums had the same order."""
    return f"{10.0 ** math.ceil(math.log10(kld)):.0e}" if kld > 0 else "not known"


def _title(result: dict[str, Any]) -> str:
    base, n_chunks = result["base"], result["n_chunks"]
    chunks = f"{n_chunks} chunk{'s' if n_chunks != 1 else ''} of {result['n_ctx']}"
    return (
        f"{shorten(result['name'], LONGEST_NAME)}: {result['n_tokens']:,} tokens in {chunks}, "
        f"base's perplexity {base['perplexity']:.2f} ± {base['perplexity_error']:.2f}, "
        f"noise floor {_rounded_up(result['noise_floor']['kld'])}"
    )


def _figures(candidate: dict[str, Any]) -> list[str]:
    kld = candidate["kld"]
    return [
        size(candidate["size"]),
        f"{candidate['bits']:.2f}",
        f"{kld['mean']:.5f} ± {kld['error']:.5f}",
        number(kld["percentiles"]["99"], ".3g"),
        number(kld["percentiles"]["99.9"], ".3g"),
        number(kld["max"], ".3g"),
        f"{100 * candidate['same_top']['share']:.2f}",
        f"{100 * candidate['ratio'] - 100:+.2f}",
    ]


def _differences(
    pairs: Sequence[dict[str, Any]], candidates: Sequence[dict[str, Any]], names: dict[str, str]
) -> Iterator[str]:
    """Say of each two candidates that are neighbours by KLD whether they can be told apart."""
    ranked = [one["model"] for one in sorted(candidates, key=lambda one: float(one["kld"]["mean"]))]
    of_pair = {(pair["model"], pair["other"]): pair for pair in pairs}
    for better, worse in pairwise(ranked):
        pair = of_pair.get((worse, better)) or of_pair[better, worse]
        verdict = "" if pair["apart"] else ": not told apart"
        difference = f"{abs(pair['difference']):.5f} ± {pair['error']:.5f}"
        here, there = (shorten(names[model], LONGEST_NAME) for model in (worse, better))
        yield f"KLD of {here} less that of {there}: {difference}{verdict}"


def _verdicts(comparisons: Sequence[dict[str, Any]]) -> Iterator[str]:
    for comparison in comparisons:
        on = f" on {comparison['name']}" if len(comparisons) > 1 else ""
        yield from (f"{line}{on}" for line in verdicts(comparison["candidates"]))


def verdicts(candidates: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Say which models are of no use, and which are larger than a better one."""
    from pyquant.evaluate.kld import BROKEN

    for candidate in candidates:
        if candidate["ratio"] > BROKEN:
            times = f"{candidate['ratio']:.3g} times the base's"
            yield f"{candidate['model']} is of no use: its perplexity is {times}"
        if (peer := candidate["dominated_by"]) is not None:
            yield f"{candidate['model']} is dominated by {peer}: larger, and a higher KLD"
