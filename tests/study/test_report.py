"""Reports, figures, tables and commands of a study: their numbers are the files'."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pyquant.cli.study import list_runs
from pyquant.errors import ConfigError, OutputError, StudyError
from pyquant.study.metrics import MEASURABLE
from pyquant.study.report.export import export
from pyquant.study.report.tables import results_table
from pyquant.study.results.columns import plus_minus
from pyquant.study.results.read import read_results
from pyquant.study.store import Store
from tests.support.studies import LABELS


class Cells(HTMLParser):
    """The tables' cells as (quantizer, column, value, text), and the page's data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[list] = []
        self.data = ""
        self._row = self._in = ""
        self.outside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        about = dict(attributes)
        self._in = "row" if about.get("scope") == "row" else "data" if about.get("id") == "results" else ""
        self.outside += [about[key] for key in ("src", "href") if key in about and tag != "use"]
        if "data-key" in about:
            self._in = "cell"
            self.cells.append([self._row, about["data-key"], float(about["data-value"]), ""])

    def handle_data(self, data: str) -> None:
        if self._in == "row":
            self._row = data
        elif self._in == "cell":
            self.cells[-1][-1] += data
        elif self._in == "data":
            self.data += data

    def handle_endtag(self, tag: str) -> None:
        self._in = ""


def test_the_reports_numbers_are_the_files(finished_study: Path) -> None:
    page = Cells((finished_study / "report.html").read_text())
    rows = {row["quantizer"]: row for row in results_table(read_results(Store(finished_study)))}
    assert list(rows) == LABELS
    columns = {column.key: column for metric in MEASURABLE for column in metric.columns}
    shown = {(row, key) for row, key, _, _ in page.cells}
    assert shown == {(name, key) for name, row in rows.items() for key in columns if row[key] is not None}
    for name, key, value, text in page.cells:
        assert value == rows[name][key]
        assert text == columns[key].text(rows[name])


def test_the_tables_numbers_are_the_runs(finished_study: Path) -> None:
    store = Store(finished_study)
    for names, row in zip(store.study()["models"][0]["rows"], results_table(read_results(store))):
        quality = store.read(names["quality"][0])["result"]
        assert row["perplexity"] == quality["perplexity"]
        assert row["perplexity_error"] == quality["perplexity_error"]
        assert row["kld"] == quality.get("kld", {}).get("mean")
        assert row["same_top_error"] == quality.get("same_top", {}).get("error")
        assert row["bytes"] == store.read(names["size"])["result"]["bytes"]
        assert row["generation"] == store.read(names["speed"])["result"]["generation"]["tokens_per_second"]
        if "codes" in names:
            total = max(store.read(names["codes"])["result"]["totals"], key=lambda one: one["n_codes"])
            assert row["zero_codes"] == total["zero_share"]
            assert row["single_zeros"] == total["zero_runs"]["shares"][0]
            assert row["single_zeros_by_chance"] == total["zero_runs"]["geometric"][0]


def test_the_report_is_one_file_with_its_data(finished_study: Path) -> None:
    text = (finished_study / "report.html").read_text()
    page = Cells(text)
    assert page.outside == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert "Small &amp; &lt;bold&gt;" in text
    found = json.loads(page.data)
    files = (finished_study / "runs").glob("*.json")
    runs = {path.stem: json.loads(path.read_text())["result"] for path in files}
    for row in found:
        assert row["size"] == runs[row["keys"]["size"][0]]
        assert row["quality"] == [runs[key] for key in row["keys"]["quality"]]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (6.23173, 0.01234, "6.232 ± 0.012"),
        (1234.5, 12.3, "1,234 ± 12"),
        (0.5, 0.0, "0.5 ± 0"),
        (13581.2, 3165.4, "13,581 ± 3,165"),
        (0.00159, 0.00012, "0.00159 ± 0.00012"),
        (1.5e-7, 2e-8, "1.50e-07 ± 2.0e-08"),
    ],
)
def test_plus_minus(value: float, error: float, text: str) -> None:
    assert plus_minus(value, error) == text


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".sqlite", ".duckdb"])
def test_export(finished_study: Path, tmp_path: Path, ending: str) -> None:
    expected = results_table(read_results(Store(finished_study)))
    path = tmp_path / f"out{ending}"
    query = 'SELECT quantizer, perplexity, "bytes" FROM results'
    counts = export(finished_study, path)
    if ending == ".csv":
        with path.open(newline="") as file:
            rows = [(r["quantizer"], float(r["perplexity"]), int(r["bytes"])) for r in csv.DictReader(file)]
    elif ending == ".sqlite":
        connection = sqlite3.connect(path)
        rows = connection.execute(query).fetchall()
        assert connection.execute("SELECT count(*) FROM codes").fetchone() == (counts["codes"],)
        connection.close()
    else:
        duckdb = pytest.importorskip("duckdb")
        source = query if ending == ".duckdb" else query.replace("results", f"'{path}'")
        with duckdb.connect(path if ending == ".duckdb" else ":memory:") as connection:
            rows = connection.execute(source).fetchall()
    assert rows == [(r["quantizer"], r["perplexity"], r["bytes"]) for r in expected]
    with pytest.raises(OutputError, match="exists; --force"):
        export(finished_study, path)


def test_other_tables_and_endings(finished_study: Path, tmp_path: Path) -> None:
    assert export(finished_study, tmp_path / "runs.csv", table="zero_runs")["zero_runs"] % 16 == 0
    with pytest.raises(ConfigError, match="table: 'rows' is not one of results, codes, zero_runs"):
        export(finished_study, tmp_path / "x.csv", table="rows")
    with pytest.raises(OutputError, match=r"must end in one of \.csv, \.parquet"):
        export(finished_study, tmp_path / "x.xlsx")


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".sqlite", ".duckdb"])
def test_a_table_without_rows_is_not_exported(finished_study: Path, tmp_path: Path, ending: str) -> None:
    with pytest.raises(ConfigError, match="has no rows of 'gptq'; name another"):
        export(finished_study, tmp_path / f"out{ending}", table="gptq")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [3, ["x"], None, "\ud800"], ids=repr)
@pytest.mark.parametrize("place", ["model", "row", "text"])
def test_names_that_are_none_are_refused(copied_study: Path, place: str, name: object) -> None:
    path = copied_study / "study.json"
    study = json.loads(path.read_text())
    model = study["models"][0]
    named = {
        "model": (model, "name"),
        "row": (model["rows"][1], "label"),
        "text": (study["texts"][0], "name"),
    }
    holder, key = named[place]
    holder[key] = name
    path.write_text(json.dumps(study))
    with pytest.raises(StudyError, match="not what this version of pyquant writes"):
        read_results(Store(copied_study))


def test_runs_without_names_are_not_listed(copied_study: Path) -> None:
    path = next((copied_study / "runs").glob("*.json"))
    record = json.loads(path.read_text())
    record["provenance"]["names"]["model"] = None
    path.write_text(json.dumps(record))
    with pytest.raises(StudyError, match="not what this version of pyquant writes"):
        list_runs(copied_study, json=False)


def test_export_where_temporary_files_have_a_quote(
    finished_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    (tmp_path / "it's").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "it's"))
    assert export(finished_study, tmp_path / "out.parquet")["results"] == len(LABELS)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".sqlite", ".duckdb"])
def test_export_of_what_no_tool_takes(copied_study: Path, tmp_path: Path, ending: str) -> None:
    path = copied_study / "study.json"
    study = json.loads(path.read_text())
    study["texts"][0]["sha256"] = "\ud800" if ending == ".csv" else ["a list"]
    path.write_text(json.dumps(study))
    with pytest.raises(StudyError, match="not what this version of pyquant writes"):
        export(copied_study, tmp_path / f"out{ending}")


def pyquant(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pyquant", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.ci
def test_commands(finished_study: Path, copied_study: Path, tmp_path: Path) -> None:
    def printed(*words: object) -> Any:
        return json.loads(pyquant("study", *words).stdout)

    runs = printed("ls", finished_study, "--json")
    assert runs["schema"] == "pyquant.study_runs/1"
    listed = runs["runs"]
    assert len(listed) == 18
    assert printed("show", finished_study, listed[0]["key"])["key"] == listed[0]["key"]
    shown = printed("show", finished_study, "--json")
    assert shown["schema"] == "pyquant.study_results/1"
    assert shown["complete"] is True
    assert [row["quantizer"] for row in shown["results"]] == LABELS
    assert "model-1.gguf on text.txt" in pyquant("study", "show", finished_study).stdout
    assert pyquant("study", "validate", finished_study).stdout == f"{finished_study}: 18 runs, all sound\n"
    (copied_study / "runs" / f"{listed[-1]['key']}.json").rename(copied_study / "away")
    assert printed("show", copied_study, "--json")["complete"] is False
    (copied_study / "away").rename(copied_study / "runs" / f"{listed[-1]['key']}.json")
    broken = copied_study / "runs" / f"{listed[0]['key']}.json"
    broken.write_text("{}")
    found = pyquant("study", "validate", copied_study)
    assert found.returncode == 1
    assert "1 of 18 runs are unsound" in found.stderr
    found = pyquant("study", "validate", copied_study, "--json")
    assert found.returncode == 1
    validated = json.loads(found.stdout)
    assert (validated["schema"], validated["n_runs"]) == ("pyquant.study_validate/1", 18)
    assert list(validated["problems"]) == [listed[0]["key"]]
    assert printed("validate", finished_study, "--json")["problems"] == {}
    nothing = pyquant("study", "ls", tmp_path)
    assert nothing.returncode == 1
    assert "no study in this folder" in nothing.stderr
