"""What a card says, by parts: front matter, tables, recipe, files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from pyquant.card.listed_file import ListedFile
from pyquant.card.markdown import cell, command, plain, yaml
from pyquant.card.results import Compared, Results

TEMPLATES = Path(__file__).parent


def render(template: str, **what: Any) -> str:
    """Fill in a template of this folder."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"cell": cell, "yaml": yaml, "gb": size}
    return environment.from_string((TEMPLATES / template).read_text(encoding="utf-8")).render(what)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], labels: int = 1) -> str:
    """Write a table in Markdown, of cells that need no escaping; the first columns are labels."""
    marks = [*[":--"] * labels, *["--:"] * (len(columns) - labels)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, marks, *rows))


def size(n_bytes: float) -> str:
    """1234567 -> '1.2 MB'."""
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def bits(file: ListedFile) -> str:
    """Write bits per weight."""
    return "-" if file.bits is None else f"{file.bits:.2f}"


def kld_table(
    compared: Compared, files: dict[str, ListedFile], cached: bool, chosen: ListedFile | None = None
) -> str:
    """Write the KLD and perplexity of models beside their base on one text, the smallest file first.

    cached: of those with caches of other types than F16. chosen: a file whose rows are in bold.
    """
    base = compared.base
    first = [*_name(files[base.model]), *[""] * 5, _error(base.perplexity, base.perplexity_error, 4)]
    rows = [] if cached else [first]
    for own in sorted(compared.candidates, key=lambda own: (own.cache_types, files[own.path].n_bytes)):
        if bool(own.cache_types) is not cached:
            continue
        name, *sizes = _name(files[own.path], own.cache_types)
        rows.append(
            [
                f"**{name}**" if files[own.path] is chosen else name,
                *sizes,
                _error(own.kld.mean, own.kld.error, 5),
                *(_percentile(own.kld.percentiles, at) for at in ("99", "99.9")),
                f"{own.kld.max:.3g}",
                _error(100 * own.same_top.share, 100 * own.same_top.error, 2),
                _error(own.perplexity, own.perplexity_error, 4) + f" ({100 * own.ratio - 100:+.2f} %)",
            ]
        )
    columns = [
        "file",
        "size",
        "bits per weight",
        "mean KLD",
        "99 %",
        "99.9 %",
        "max",
        "same top %",
        "perplexity",
    ]
    return table(columns, rows)


def shares_table(compared: Compared) -> str:
    """Write what mean KLDs come of."""
    rows = []
    for own in compared.shares:
        parts = (own.weights, own.activations, own.cache)
        kld = [f"{part.kld:.5f} ± {part.error:.5f}" if part else "-" for part in parts]
        rows.append([_called(_base(own.path), own.cache_types), *kld, f"{own.total.kld:.5f}"])
    return table(["file", "weights", "8-bit activations", "cache", "mean KLD"], rows)


def accuracy_table(results: Results, files: dict[str, ListedFile]) -> str:
    """Write accuracies, and questions whose answers flip."""
    rows = []
    for asked in results.asked:
        what = f"{cell(asked.format.replace('_', ' '))}, {asked.n_questions:,} questions"
        own = asked.base
        rows.append(
            [what, cell(files[own.model].name), _error(100 * own.accuracy, 100 * own.error, 2), "", "", ""]
        )
        for other in asked.candidates:
            flips = f"{other.right_to_wrong:,}", f"{other.wrong_to_right:,}", f"{other.p:.3g}"
            score = _error(100 * other.accuracy, 100 * other.error, 2)
            rows.append([what, cell(files[other.model].name), score, *flips])
    return table(
        ["questions", "file", "accuracy %", "right to wrong", "wrong to right", "McNemar's p"], rows, 2
    )


def speed_tables(results: Results, files: dict[str, ListedFile], chosen: ListedFile | None = None) -> str:
    """Write tokens per second, a table for each result."""
    return "\n\n".join(_speed_table(results, i, files, chosen) for i in range(len(results.speeds)))


def _speed_table(
    results: Results, which: int, files: dict[str, ListedFile], chosen: ListedFile | None
) -> str:
    speed = results.speeds[which]
    rows = []
    for own in speed.models:
        name, *sizes = _name(files[own.model])
        rates = [
            f"{r.tokens_per_second:,.1f} ({r.low:,.1f} to {r.high:,.1f})"
            for r in (own.prompt, own.generation)
        ]
        rows.append([f"**{name}**" if files[own.model] is chosen else name, *sizes, *rates])
    tests = [f"prompt {speed.n_prompt:,}, t/s", f"generation {speed.n_generate:,}, t/s"]
    machine = cell(speed.made_by.cpu) or "an unnamed CPU"
    title = f"CPU: {machine}; threads: {speed.n_threads}."
    return f"{title}\n\n{table(['file', 'size', 'bits per weight', *tests], rows)}"


def commands(results: Results) -> list[str]:
    """Write the commands that make the results again, beside the files."""
    lines = []
    for together in results.together:
        for one in together:
            text = _base(one.text) if one.name in ("", _base(one.text)) else f"{one.name}={_base(one.text)}"
            if one.kind == "text":
                lines.append(_compare([one], "--text", text, "--ctx", one.n_ctx))
            elif one.kind == "chat":
                lines.append(_compare([one], "--chat", text))
        if bundled := [one for one in together if one.kind in ("bundled", "answers")]:
            ctx = [one.n_ctx for one in bundled if one.kind == "bundled"]  # a chat's is its own length
            lines.append(_compare(bundled, "--bundled", *(["--ctx", ctx[0]] if ctx else [])))
    for asked in results.asked:
        names = map(_base, (asked.base.model, *(own.model for own in asked.candidates)))
        some = ["--questions", asked.n_questions] if asked.n_questions < asked.n_in_file else []
        option = f"--{asked.format.replace('_', '-')}"
        lines.append(command("pyquant", "accuracy", *names, option, _base(asked.file), *some))
    for speed in results.speeds:
        names = map(_base, (own.model for own in speed.models))
        tests = ["--prompt", speed.n_prompt, "--generate", speed.n_generate, "--threads", speed.n_threads]
        rounds = ["--rounds", len(speed.models[0].prompt.rounds)]
        lines.append(command("pyquant", "speed", *names, *tests, *rounds))
    return lines


def _compare(measured: Sequence[Compared], *how: object) -> str:
    """Write the command that makes the results of some texts, of the first one's models."""
    one = measured[0]
    models = [own.path for own in one.candidates if not own.cache_types]
    caches = [(own.cache_type_k, own.cache_type_v) for own in one.candidates if own.cache_types]
    options = [word for k, v in dict.fromkeys(caches) for word in ("-ctk", k, "-ctv", v)]
    names = map(_base, (one.base.model, *models))
    n_chunks = max(one.n_chunks for one in measured)  # a text that has fewer gives all that it has
    shares = ["--shares"] if any(one.shares for one in measured) else []
    return command("pyquant", "compare", *names, *how, "--chunks", n_chunks, *options, *shares)


def texts(results: Results) -> list[tuple[str, str, str]]:
    """List name, use and SHA-256 of texts and questions, each once."""
    found = [
        (
            one.name if one.kind == "answers" else _base(one.text),
            f"{one.n_tokens:,} tokens in {one.n_chunks:,} chunks of {one.n_ctx:,}",
            one.text_sha256,
        )
        for one in results.compared
    ]
    found += [
        (_base(one.file), f"{one.n_questions:,} of {one.n_in_file:,} questions", one.sha256)
        for one in results.asked
    ]
    return list(dict.fromkeys(found))


def _base(path: str) -> str:
    """Leave out folders: they are of one machine."""
    return plain(path).rpartition("/")[2]


def _name(file: ListedFile, cache: str = "") -> list[str]:
    return [_called(file.name, cache), size(file.n_bytes), bits(file)]


def _called(name: str, cache: str) -> str:
    return cell(f"{name} ({cache})" if cache else name)


def _error(value: float, error: float, digits: int) -> str:
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _percentile(percentiles: dict[str, float], at: str) -> str:
    return f"{percentiles[at]:.4f}" if at in percentiles else "-"
