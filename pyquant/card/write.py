"""Write a card and its figure, both or none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyquant.card import page
from pyquant.card.figure import LEAST, kld_figure
from pyquant.card.listed_file import ListedFile, Progress, find_models, list_files
from pyquant.card.markdown import plain
from pyquant.card.results import Compared, Results, read_results
from pyquant.errors import ConfigError
from pyquant.files.fingerprint import fingerprint
from pyquant.files.output_file import check_output
from pyquant.files.output_files import OutputFiles

SCHEMA = "pyquant.card/1"


def write_card(
    results: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    license: str | None = None,
    base_model: str | None = None,
    title: str | None = None,
    new_type: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a model card from results, and beside it a figure where KLDs were measured.

    Models are where the results say, or beside the results.

    Parameters
    ----------
    results
        Files with what `pyquant compare`, `accuracy` and `speed` printed with --json, of one base.
    output
        The card, such as README.md. The figure has its name with .kld.png.
    license
        A hub's name of one, such as apache-2.0; None: what the base says.
    base_model
        The base's name on a hub, such as ORGANIZATION/MODEL.
    title
        None: the base's name.
    new_type
        Name of a file among the models: write what llama.cpp asks of its type instead of a card.
    force
        Replace existing files.
    progress
        Called with bytes that are hashed, all of them, and the name of the file at work.

    Returns
    -------
    what : dict
        What `pyquant card --json` prints.

    Raises
    ------
    ConfigError
        A file is no such result, results have several bases, or a model is not there.
    ModelFileError
        A model cannot be read.
    OutputError
        A file exists, or cannot be written.
    """
    output, sources = Path(output), [Path(path) for path in results]
    figure = output.parent / f"{output.stem}.kld.png"  # with_name raises for a folder, which is refused below
    found = read_results(sources)
    drawn = next(filter(_has_points, found.compared), None)
    outputs = [output, figure] if drawn else [output]
    models = find_models(found.models, list(dict.fromkeys(path.parent for path in sources)))
    for named, n_bytes in found.sizes:
        if n_bytes != models[named].n_bytes:
            raise ConfigError(
                f"card: {models[named].path}: has {models[named].n_bytes:,} bytes, and a result is of "
                f"{n_bytes:,}: measure it again"
            )
    for named, measured in sorted(found.fingerprints):
        if named in models and fingerprint(models[named].paths) != measured:
            raise ConfigError(
                f"card: {models[named].path}: is not the file that a result is of: measure it again"
            )
    sources += [path for model in models.values() for path in model.paths]
    for path in outputs:
        check_output(path, sources=sources, force=force)
    files = list_files(models, progress)
    base = files[found.bases[0]]
    if any(files[named] is not base for named in found.bases):
        names = ", ".join(sorted({files[named].name for named in found.bases}))
        raise ConfigError(f"card: results of several bases, {names}: a card has one")
    others = [file for file in dict.fromkeys(files.values()) if file is not base]
    chosen = None if new_type is None else _chosen(found, files, others, new_type)
    license = license or str(base.metadata.get("general.license", "")).lower()  # as hubs write them
    what = _what(found, files, base, chosen, figure.name if drawn else "")
    if chosen is None:
        text = page.render(
            "card.md.jinja",
            license=license,
            base_model=base_model,
            title=title or f"{base.metadata.get('general.name', base.name)}, quantized",
            architecture=base.metadata.get("general.architecture"),
            accuracy=page.accuracy_table(found, files) if found.asked else "",
            files=others,
            **what,
        )
    else:
        text = page.render("new_type.md.jinja", chosen=chosen, **what)
    contents = [text.encode(), _figure(drawn, files)] if drawn else [text.encode()]
    sizes = [(path, len(content)) for path, content in zip(outputs, contents)]
    with OutputFiles(sizes, sources=sources, force=force) as written:
        for i, content in enumerate(contents):
            written[i].write(content, 0)
        written.commit()
    return {
        "schema": SCHEMA,
        "output": str(output),
        "figure": str(figure) if drawn else None,
        "license": license or None,
        "files": [
            {"name": name, "n_bytes": n_bytes, "sha256": sha256}
            for file in others
            for name, n_bytes, sha256 in file.parts
        ],
    }


def _what(
    found: Results, files: dict[str, ListedFile], base: ListedFile, chosen: ListedFile | None, figure: str
) -> dict[str, Any]:
    """List what both kinds of pages say."""
    return {
        "base": base,
        "figure": quote(os.fsencode(figure)),
        "kld": list(_kld(found, files, chosen)),
        "speed": page.speed_tables(found, files, chosen) if found.speeds else "",
        "texts": page.texts(found),
        "has_plain_text": any(one.kind in ("text", "bundled") for one in found.compared),
        "versions": found.versions,
        "commands": page.commands(found),
    }


def _kld(
    found: Results, files: dict[str, ListedFile], chosen: ListedFile | None
) -> Iterator[tuple[str, str]]:
    """Yield a heading and a table for each text, and for what else was measured on it."""
    for one in found.compared:
        if any(not own.cache_types for own in one.candidates):
            yield _heading(one), page.kld_table(one, files, False, chosen)
        if any(own.cache_types for own in one.candidates):
            yield f"{_heading(one)}, cache of other types", page.kld_table(one, files, True, chosen)
        if one.shares:
            yield f"{_heading(one)}: what it comes of", page.shares_table(one)


def _heading(compared: Compared) -> str:
    return f"KLD on {page.cell(_text_name(compared))}"


def _text_name(compared: Compared) -> str:
    return compared.name or plain(compared.text).rpartition("/")[2]


def _chosen(
    found: Results, files: dict[str, ListedFile], others: Sequence[ListedFile], new_type: str
) -> ListedFile:
    """Find the file of the new type, and check that all is there that llama.cpp asks for."""
    chosen = next((file for file in others if file.name == Path(new_type).name), None)
    if chosen is None:
        raise ConfigError(
            f"card: new-type: results have no {new_type!r}, but {', '.join(file.name for file in others)}"
        )
    compared = [{files[own.path] for own in one.candidates} for one in found.compared]
    if not any(chosen in beside and len(beside) > 1 for beside in compared):
        raise ConfigError(
            "card: new-type: give a result of `pyquant compare --json` of it and types of similar size"
        )
    if not any(files[own.model] is chosen for speed in found.speeds for own in speed.models):
        raise ConfigError("card: new-type: give a result of `pyquant speed --json` of it and them too")
    return chosen


def _has_points(compared: Compared) -> bool:
    """Say whether a KLD of a text has a place in the figure, which is of caches of F16."""
    return any(own.kld.mean >= LEAST and not own.cache_types for own in compared.candidates)


def _figure(compared: Compared, files: dict[str, ListedFile]) -> bytes:
    points = [
        (Path(files[own.path].name).stem, float(files[own.path].n_bytes), own.kld.mean, own.kld.error)
        for own in compared.candidates
        if not own.cache_types
    ]
    return kld_figure(points, _text_name(compared))
