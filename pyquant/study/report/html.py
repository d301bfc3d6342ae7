"""The report of a study: one HTML file with everything in it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from pyquant.figures.style import STYLE
from pyquant.study.report import figures
from pyquant.study.report.columns import CODES, COMPENSATION, QUALITY, flat, known_columns
from pyquant.study.report.comparison import COMPENSATES, compensation_rows
from pyquant.study.report.results import ModelResults, Results, RowResults, read_results
from pyquant.study.report.tradeoff import tradeoff
from pyquant.study.store import Store

TEMPLATE = Path(__file__).with_name("report.html.jinja")


def report(store: Store) -> str:
    """The page, of all results that are there. The same results make the same page."""
    results = read_results(store)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        results=results,
        models=[_model(results, model) for model in results.models],
        quality=QUALITY,
        codes=CODES,
        compensation=COMPENSATION,
        known=known_columns,
        made=_made(results),
        data=Markup(json.dumps(_data(results)).replace("<", "\\u003c")),
    )


def _model(results: Results, model: ModelResults) -> dict[str, Any]:
    rows = [
        [flat(results, model, text, row) for row in model.rows] for text in range(max(len(model.texts), 1))
    ]
    counted = [(row, one) for row, one in zip(model.rows, rows[0]) if row.codes]
    return {
        "name": model.name,
        "sha256": model.sha256,
        "tables": [
            {"text": text, "rows": of_text, "floor": _floor(of_text)}
            for text, of_text in zip(model.texts or [None], rows)
        ],
        "compensation": [_compensation(model, text) for text in range(len(model.texts))],
        "compensates": any(row.knows and row.knows["how"] in COMPENSATES for row in model.rows),
        "codes": [one for _, one in counted],
        "quality_figures": _quality_figures(model),
        "speed_figures": _speed_figures(model),
        "codes_figures": [figure for row, _ in counted for figure in _codes_figures(row)],
    }


def _compensation(model: ModelResults, text: int) -> dict[str, Any]:
    """Compensated quantizers, what they gain by each calibration side by side."""
    rows = compensation_rows(model, text)
    by_place = {(row["quantizer"], row["calibration"]): row for row in rows}
    return {
        "text": model.texts[text],
        "calibrations": list(dict.fromkeys(row["calibration"] for row in rows)),
        "quantizers": list(dict.fromkeys(row["quantizer"] for row in rows)),
        "row": lambda quantizer, calibration: by_place.get((quantizer, calibration)),
    }


def _floor(rows: list[dict[str, Any]]) -> float | None:
    return next((row["noise_kld"] for row in rows if row["noise_kld"] is not None), None)


def _quality_figures(model: ModelResults) -> list[dict[str, Any]]:
    drawn = []
    for text, name in enumerate(model.texts):
        there = [row for row in model.rows if row.mode and row.quality[text]]
        if not there:
            continue
        tall = 1.0 + 0.24 * len(model.rows)
        drawn += [
            _drawn(
                f"Perplexity on {name}; the dashed line is the unquantized model's.",
                figures.figure(figures.perplexities(model, text), height=tall),
            ),
            _drawn(
                f"Mean divergence from the unquantized model on {name}.",
                figures.figure(figures.divergences(model, text), height=tall),
            ),
        ]
        if all(row.size for row in there):
            drawn.append(
                _drawn(
                    f"Divergence on {name} for size: lower and more to the left is better. The dotted line "
                    "falls as squared error does with finer steps.",
                    figures.figure(tradeoff(model, text), height=5.5),
                )
            )
    return drawn


def _speed_figures(model: ModelResults) -> list[dict[str, Any]]:
    if not all(row.speed for row in model.rows):
        return []
    tall = 1.0 + 0.24 * len(model.rows)
    return [
        _drawn(
            f"{test.capitalize()}; lines go from the slowest to the fastest round.",
            figures.figure(figures.speeds(model, test), height=tall),
        )
        for test in ("prompt", "generation")
    ]


def _codes_figures(row: RowResults) -> list[dict[str, Any]]:
    return [
        _drawn(
            f"How often each code of {row.label} occurs; in orange the one nearest to zero.",
            figures.figure(figures.codes(row, by_code=row.mode == "q4_0")),
        ),
        _drawn(
            f"Lengths of runs of zeros of {row.label}; diamonds: if zeros came by chance.",
            figures.figure(figures.runs(row)),
        ),
    ]


def _drawn(caption: str, figure: Figure) -> dict[str, Any]:
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()[buffer.getvalue().index("<svg") :]
    # Names of groups repeat in every figure; nothing refers to them.
    svg = re.sub(r' id="[a-zA-Z]+[0-9]*_[0-9]+"', "", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{caption}" ', 1)
    return {"caption": caption, "svg": Markup(svg)}


def _made(results: Results) -> dict[str, Any]:
    every = list(results.provenance.values())
    environments = [one["environment"] for one in every]

    def distinct(values: Any) -> list[str]:
        return sorted({str(value) for value in values})

    return {
        "first": min((one["started"] for one in every), default=None),
        "last": max((one["started"] for one in every), default=None),
        "minutes": sum({one["task"] + one["started"]: one["seconds"] for one in every}.values()) / 60,
        "commands": distinct(one["command"] for one in every if one["command"]),
        "processors": distinct(
            f"{one['cpu']}, {one['environment']['processors']} processors" for one in every
        ),
        "systems": distinct(one["platform"] for one in environments),
        "versions": distinct(
            f"pyquant {one['pyquant']}, Python {one['python']}, GGML {one['ggml']} of llama-cpp-python "
            f"{one['built_for_llama_cpp_python']} ({one['compiler']}, {one['build_type']})"
            for one in environments
        ),
        "warnings": distinct(warning for one in every for warning in one["warnings"]),
    }


def _data(results: Results) -> list[dict[str, Any]]:
    """What the tables and figures show, for whoever wants to compute with it."""
    return [
        {
            "model": model.name,
            "quantizer": row.label,
            "keys": row.keys,
            "codes": row.codes,
            "size": row.size,
            "speed": row.speed,
            "quality": row.quality,
        }
        for model in results.models
        for row in model.rows
    ]
