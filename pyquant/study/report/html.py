"""The report of a study: one HTML file with everything in it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pyquant.inspect.figures.style import GRAY, STYLE
from pyquant.study.metric import Grid
from pyquant.study.metrics import MEASURABLE, Metric
from pyquant.study.report.tables import flat
from pyquant.study.results.columns import Column, Flat, known_columns
from pyquant.study.results.figures import GRID, Drawing
from pyquant.study.results.read import ModelResults, Results, read_results, understood
from pyquant.study.store import Store

TEMPLATE = Path(__file__).with_name("report.html.jinja")
# Colors of figures that a page in dark colors changes.
COLORS = {"#000000": "currentColor", "#ffffff": "var(--paper)", GRAY: "var(--soft)", GRID: "var(--grid)"}


@dataclass
class Section:
    """A part of the page, under a heading: a table, sentences, further tables, figures."""

    title: str
    columns: list[Column] = field(default_factory=list)  # of the table; both empty for none
    rows: list[Flat] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # sentences below the table
    # what follows; figures as dictionaries of caption and SVG
    grids: list[Grid] = field(default_factory=list)
    figures: list[dict[str, str]] = field(default_factory=list)


def report(store: Store) -> str:
    """Write the page, of all results that are there. The same results make the same page.

    Raises StudyError: there is no study in the folder.
    """
    with understood(store.folder):
        return _page(read_results(store))


def _page(results: Results) -> str:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    models = [_model(results, model) for model in results.models]
    sections = [section for model in models for section in [*model["opening"], *model["sections"]]]
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        results=results,
        models=models,
        definitions=_definitions(sections),
        made=_made(results),
        data=Markup(json.dumps(_data(results)).replace("<", "\\u003c")),
    )


def _model(results: Results, model: ModelResults) -> dict[str, Any]:
    n_texts = max(len(model.texts), 1)
    sections = [_opening(model), *(_results_on(results, model, text) for text in range(n_texts))]
    sections += [_own_section(results, model, metric) for metric in MEASURABLE if metric.title]
    findings = [
        (model.texts[text] if metric.unit == "text" else None, sentence)
        for metric in MEASURABLE
        for text in _texts(metric, model)
        for sentence in metric.findings(model, text)
    ]
    return {
        "name": model.name,
        "sha256": model.sha256,
        "findings": {place: [s for p, s in findings if p == place] for place in dict(findings)},
        "opening": [section for section in sections[:1] if section.figures or section.grids],
        "sections": [section for section in sections[1:] if section.rows or section.figures],
    }


def _opening(model: ModelResults) -> Section:
    """What people look for first, on the first text; of the others it stands with their results."""
    section = Section(f"KLD for size on {model.texts[0]}" if model.texts else "")
    for metric in MEASURABLE:
        section.grids += metric.first_grids(model, 0)
        section.figures += [_drawn(drawing) for drawing in metric.first_figures(model, 0)]
    return section


def _results_on(results: Results, model: ModelResults, text: int) -> Section:
    """All that has no section of its own, of all quantizers on a text."""
    rows = [flat(results, model, text, row) for row in model.rows]
    columns = [column for metric in MEASURABLE if not metric.own_table for column in metric.columns]
    section = Section(
        title=f"Results on {model.texts[text]}" if model.texts else "Results",
        columns=known_columns(columns, rows),
        rows=rows,
    )
    for metric in MEASURABLE:
        if metric.title or (metric.unit != "text" and text > 0):
            continue
        section.remarks += metric.remarks(model, text)
        if text > 0:
            section.grids += metric.first_grids(model, text)
            section.figures += [_drawn(drawing) for drawing in metric.first_figures(model, text)]
        section.grids += metric.grids(model, text)
        section.figures += [_drawn(drawing) for drawing in metric.figures(model, text)]
    return section


def _own_section(results: Results, model: ModelResults, metric: Metric) -> Section:
    section = Section(title=metric.title or metric.name)
    for text in _texts(metric, model):
        known = [row for row in model.rows if row.result(metric.name, text)]
        section.remarks += metric.remarks(model, text) if known else []
        section.grids += metric.grids(model, text) if known else []
        section.figures += [_drawn(drawing) for drawing in metric.figures(model, text)] if known else []
        if metric.own_table:
            place = f" on {model.texts[text]}" if metric.unit == "text" and len(model.texts) > 1 else ""
            for row in known:
                cells = flat(results, model, text, row)
                section.rows.append({**cells, "quantizer": f"{row.label}{place}"})
    section.columns = known_columns(metric.columns, section.rows) if section.rows else []
    section.remarks += [metric.note] if metric.note and (section.rows or section.figures) else []
    return section


def _texts(metric: Metric, model: ModelResults) -> Iterable[int]:
    return range(len(model.texts) if metric.unit == "text" else 1)


def _definitions(sections: list[Section]) -> dict[str, str]:
    """Give the meaning of each head of a column."""
    columns = {column.head: column.meaning for section in sections for column in section.columns}
    grids = [head for section in sections for grid in section.grids for head in grid.heads]
    return columns | dict(grids)


def _drawn(drawing: Drawing) -> dict[str, str]:
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        drawing.figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()[buffer.getvalue().index("<svg") :]
    # Names of groups repeat in every figure; nothing refers to them.
    svg = re.sub(r' id="[a-zA-Z]+[0-9]*_[0-9]+"', "", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'style="[^"]*"', lambda style: _themed(style[0]), svg)
    label = Markup('<svg role="img" aria-label="{}" ').format(drawing.caption)
    return {"caption": drawing.caption, "svg": Markup(svg.replace("<svg ", label, 1))}


def _themed(style: str) -> str:
    for color, themed in COLORS.items():
        style = style.replace(color, themed)
    return style


def _made(results: Results) -> dict[str, Any]:
    every = list(results.provenance.values())
    environments = [made["environment"] for made in every]

    def distinct(values: Any) -> list[str]:
        return sorted({str(value) for value in values})

    return {
        "first": min((made["started"] for made in every), default=None),
        "last": max((made["started"] for made in every), default=None),
        "minutes": sum({made["task"] + made["started"]: made["seconds"] for made in every}.values()) / 60,
        "commands": distinct(made["command"] for made in every if made["command"]),
        "machines": distinct(f"{made['cpu']}, {made['environment']['cores']} cores" for made in every),
        "systems": distinct(made["platform"] for made in environments),
        "versions": distinct(
            f"pyquant {made['pyquant']}, Python {made['python']}, GGML {made['ggml']} of llama-cpp-python "
            f"{made['built_for_llama_cpp_python']} ({made['compiler']}, {made['build_type']})"
            for made in environments
        ),
        "warnings": distinct(warning for made in every for warning in made["warnings"]),
    }


def _data(results: Results) -> list[dict[str, Any]]:
    """Give what the tables and figures show, for whoever wants to compute with it.

    Of metrics of texts there is a list, with a result for each.
    """

    def result(metric: Metric, row: Any) -> Any:
        if metric.unit == "text":
            return [row.result(metric.name, text) for text in range(len(results.texts))]
        return row.result(metric.name)

    return [
        {
            "model": model.name,
            "quantizer": row.label,
            "keys": row.keys,
            **{metric.name: result(metric, row) for metric in MEASURABLE if metric.name in row.keys},
        }
        for model in results.models
        for row in model.rows
    ]
