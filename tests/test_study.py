"""The study: runs once each, goes on after anything, and reports what its files say."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from models import Model

from pyquant.config import make_mode
from pyquant.errors import ConfigError, OutputError, StudyError, TextError
from pyquant.histogram import count_codes
from pyquant.perplexity import measure_perplexity
from pyquant.quantize import quantize_model
from pyquant.study.config import label, read_study
from pyquant.study.export import export
from pyquant.study.plan import make_plan
from pyquant.study.results import read_results
from pyquant.study.run import Status, Summary, run_study
from pyquant.study.store import Store
from pyquant.study.table import CODES, QUALITY, plus_minus, results_table

ROOT = Path(__file__).parents[1]
STUDY = """
title = "Small & <bold>"
ctx = 32
chunks = 3
measure = {measure}
[speed]
prompt = 8
generate = 4
rounds = 1
[[quantizer]]
mode = "q4_0_multizero"
radius = [0, 2]
[[quantizer]]
mode = ["q8_table"]
table = "balanced"
[[quantizer]]
mode = "ggml:Q4_K"
"""
EVERYTHING = ["codes", "size", "quality", "speed"]
SAME_EVERYWHERE = ["codes", "size", "quality"]  # speed is another one every time
LABELS = ["unquantized", "q4_0_multizero 0", "q4_0_multizero 2", "q8_table balanced", "ggml:Q4_K"]


class Bench:
    """A folder with models, a text and a study of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text = folder / "text.txt"
        self.text.write_text("the rain in the hen then tin ant " * 30)
        self.models = [Model(n_layer=1, seed=seed).write(folder / f"model-{seed}.gguf") for seed in (1, 2)]
        self.config = self.write("study.toml", EVERYTHING)
        self.same = self.write("same.toml", SAME_EVERYWHERE)

    def write(self, name: str, measure: list[str], more: str = "") -> Path:
        path = self.folder / name
        path.write_text(more + STUDY.format(measure=measure))
        return path

    def run(self, results: Path, config: Path | None = None, n_models: int = 1, **options: object) -> Summary:
        study = read_study(config or self.config, models=self.models[:n_models], texts=[self.text])
        return run_study(study, results, workers=1, command="made by a test", **options)

    def command(self, results: Path, *more: object) -> list[str]:
        words = [sys.executable, "-m", "pyquant", "study", "run", self.same]
        words += ["--model", self.models[0], "--model", self.models[1], "--text", self.text]
        return [str(word) for word in [*words, "--results", results, "--workers", 1, *more]]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def finished(bench: Bench) -> Path:
    """The results of everything on one model. Not to be changed."""
    results = bench.folder / "finished"
    bench.run(results)
    return results


@pytest.fixture(scope="session")
def undisturbed(bench: Bench) -> dict[str, dict]:
    """What is the same everywhere, of both models, in a study that nothing disturbed."""
    bench.run(bench.folder / "undisturbed", bench.same, n_models=2)
    return contents(bench.folder / "undisturbed")


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def contents(results: Path) -> dict[str, dict]:
    """Every run's file by its name, without what is not the same everywhere."""
    found = {path.name: json.loads(path.read_text()) for path in (results / "runs").iterdir()}
    return {name: {key: one[key] for key in one if key != "provenance"} for name, one in found.items()}


def snapshot(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# Running


def test_everything_runs_once(bench: Bench, copy: Path) -> None:
    runs = sorted((copy / "runs").iterdir())
    # Codes of three quantizers (Q4_K's are not counted); the others of four and the model itself.
    kinds = [path.name.partition("-")[0] for path in runs]
    assert {kind: kinds.count(kind) for kind in EVERYTHING} == {
        "codes": 3,
        "size": 5,
        "quality": 5,
        "speed": 5,
    }
    assert not list((copy / "models").iterdir())
    before = snapshot(copy)
    assert bench.run(copy).made == 0
    assert snapshot(copy) == before


def test_a_new_model_and_a_new_text_run_alone(bench: Bench, copy: Path) -> None:
    before = snapshot(copy / "runs")
    steps: list[Status] = []
    done = bench.run(copy, n_models=2, watch=steps.append)
    assert (done.made, done.kept) == (18, 18)
    assert all(bench.models[1].name in step.finished[0] for step in steps if step.finished)
    assert before.items() <= snapshot(copy / "runs").items()
    assert steps[-1].share == pytest.approx(1)
    assert steps[-1].done == steps[-1].total == 10  # 3 of codes, 5 of sizes, quality, speed


def test_a_missing_result_is_made_again(bench: Bench, copy: Path) -> None:
    base = json.loads((copy / "study.json").read_text())["models"][0]["rows"][0]["quality"][0]
    before = contents(copy)
    (copy / "runs" / f"{base}.json").unlink()
    assert bench.run(copy).made == 1
    assert contents(copy) == before


def test_together_does_not_matter(bench: Bench, tmp_path: Path, undisturbed: dict[str, dict]) -> None:
    config = bench.write("together.toml", SAME_EVERYWHERE, "together = 3\n")
    bench.run(tmp_path / "results", config)
    assert contents(tmp_path / "results").items() <= undisturbed.items()


def test_models_of_the_same_name(bench: Bench, tmp_path: Path) -> None:
    models = [tmp_path / folder / "model.gguf" for folder in ("a", "b")]
    for source, path in zip(bench.models, models):
        path.parent.mkdir()
        shutil.copy(source, path)
    study = read_study(bench.write("size.toml", ["size"]), models=models)
    assert run_study(study, tmp_path / "results", workers=1).made == 10
    assert [model.name for model in read_results(Store(tmp_path / "results")).models] == [
        "a/model.gguf",
        "b/model.gguf",
    ]


def test_quantized_models_may_be_kept(bench: Bench, tmp_path: Path) -> None:
    bench.run(tmp_path / "results", bench.write("size.toml", ["size"]), keep=True)
    assert len(list((tmp_path / "results" / "models").glob("*.gguf"))) == 4


def test_results_are_the_librarys(bench: Bench, finished: Path, tmp_path: Path) -> None:
    (model,) = read_results(Store(finished)).models
    row = model.row("q4_0_multizero 2")
    mode = make_mode({"mode": "q4_0_multizero", "radius": 2})
    report = quantize_model(bench.models[0], tmp_path / "q.gguf", mode).to_json()
    assert row.size["bytes"] == report["output_bytes"] == (tmp_path / "q.gguf").stat().st_size
    assert row.size["snr_db"] == report["snr_db"]
    assert row.size["bits_per_weight"] == report["bits_per_weight"]
    alone = measure_perplexity(tmp_path / "q.gguf", bench.text, n_ctx=32, n_chunks=3)
    assert row.quality[0]["perplexity"] == pytest.approx(alone.ppl, rel=1e-6)
    assert row.codes["totals"] == count_codes(bench.models[0], mode).to_json()["totals"]


def test_provenance(bench: Bench, finished: Path) -> None:
    for path in (finished / "runs").iterdir():
        record = json.loads(path.read_text())
        assert record["schema"] == "pyquant.run/1"
        assert record["inputs"]["model"] == hashlib.sha256(bench.models[0].read_bytes()).hexdigest()
        about = record["provenance"]
        assert about["names"]["model"] == "model-1.gguf"
        assert about["command"] == "made by a test"
        assert about["environment"]["built_for_llama_cpp_python"] == record["inputs"]["llama_cpp_python"]
        assert about["cpu"]
        assert about["seconds"] > 0


def test_keys_say_what_results_depend_on(bench: Bench, tmp_path: Path) -> None:
    def keys(text: Path = bench.text, model: Path = bench.models[0], **settings: object) -> list[str]:
        study = read_study(bench.config, models=[model], texts=[text], **settings)
        with Store(tmp_path / "results") as store:
            return [run.key for run in make_plan(study, store).runs()]

    other_name = Path(shutil.copy(bench.models[0], tmp_path / "other name.gguf"))
    other_text = tmp_path / "other.txt"
    other_text.write_text("other " * 200)
    assert keys() == keys(model=other_name)
    assert keys(quantizer=[{"mode": "q4_0", "threads": 1}]) == keys(quantizer=[{"mode": "q4_0"}])
    assert not set(keys()) & set(keys(model=bench.models[1]))
    for change in ({"text": other_text}, {"ctx": 64}, {"chunks": 2}):
        same = set(keys()) & set(keys(**change))
        assert {key.partition("-")[0] for key in same} == {"codes", "size", "speed"}
    tables = tmp_path / "table.toml"
    different = []
    for high in (126, 127):
        tables.write_text(f"values = {[*range(-8, 7), high]}")
        different.append(keys(quantizer=[{"mode": "q8_table", "table": str(tables)}]))
    assert different[0][:3] == different[1][:3]  # of the model itself
    assert not set(different[0][3:]) & set(different[1][3:])


# Interruptions


def start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(condition, process: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)


@pytest.mark.parametrize("seed", range(3))
def test_killed_anywhere_it_goes_on(
    bench: Bench, tmp_path: Path, undisturbed: dict[str, dict], seed: int
) -> None:
    results = tmp_path / "results"
    kills = [3 + seed, 9 + 2 * seed, 16 + 2 * seed]
    for n_files in kills:
        process = start(bench.command(results))
        wait_for(lambda: len(list((results / "runs").glob("*.json"))) >= n_files, process)  # noqa: B023
        time.sleep(0.02 * seed)
        process.kill()  # only the parent: its workers end by themselves
        process.communicate()
        assert contents(results).items() <= undisturbed.items()
    subprocess.run(bench.command(results), check=True, capture_output=True)
    assert contents(results) == undisturbed
    leftovers = [path for path in results.rglob(".*") if path.name != ".lock"]
    assert leftovers == []
    assert list((results / "models").iterdir()) == []


def test_control_c_keeps_what_is_finished(bench: Bench, tmp_path: Path, undisturbed: dict[str, dict]) -> None:
    results = tmp_path / "results"
    process = start(bench.command(results))
    wait_for(lambda: len(list((results / "runs").glob("*.json"))) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert 2 <= len(contents(results)) < len(undisturbed)
    assert contents(results).items() <= undisturbed.items()
    subprocess.run(bench.command(results), check=True, capture_output=True)
    assert contents(results) == undisturbed


def test_a_killed_worker_is_reported(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill_children(status: Status) -> None:
        import multiprocessing

        if status.running:
            for child in multiprocessing.active_children():
                child.kill()

    with pytest.raises(StudyError, match="a worker process was killed"):
        bench.run(tmp_path / "results", watch=kill_children)
    bench.run(tmp_path / "results", bench.write("size.toml", ["size"]))


def test_two_at_once_are_refused(bench: Bench, copy: Path) -> None:
    before = snapshot(copy)
    with Store(copy), pytest.raises(StudyError, match=f"another study is at work.*process {os.getpid()}"):
        bench.run(copy)
    assert snapshot(copy) == before
    bench.run(copy)


def test_one_failure_does_not_stop_the_others(bench: Bench, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("the")
    study = read_study(bench.config, models=bench.models[:1], texts=[bench.text, short])
    with pytest.raises(StudyError, match=r"1 of 11 tasks failed[^:]*:\n.*short\.txt: too short: \d+ tokens"):
        run_study(study, tmp_path / "results", workers=1)
    kinds = [path.name.partition("-")[0] for path in (tmp_path / "results" / "runs").iterdir()]
    assert kinds.count("quality") == kinds.count("speed") == 5
    results = read_results(Store(tmp_path / "results"))
    assert not results.complete
    assert "not finished" in (tmp_path / "results" / "report.html").read_text()


# Bad input


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("qantizer = 1", ["no key 'qantizer'", "did you mean 'quantizer'?"]),
        ("[speed]\nround = 1\n[[quantizer]]\nmode = 'q4_0'", ["'speed.round'", "did you mean 'rounds'?"]),
        ("[[quantizer]]\nmode = 'q4_0_multizero'\nraduis = [1]", ["quantizer 1", "did you mean 'radius'?"]),
        (
            "[[quantizer]]\nmode = 'q4_0_multizero'\nradius = [1, 9]",
            ["quantizer 1", "less than or equal to 7"],
        ),
        ("measure = ['sise']\n[[quantizer]]\nmode = 'q4_0'", ["measure.0", "'size'"]),
        ("title = 'nothing'", ["needs 'quantizer'"]),
        ("[[quantizer]]\nmode = 'q4_0'", ["models: none are given", "--model"]),
        ("models = [1]\n[[quantizer]]\nmode = 'q4_0'", ["models.0"]),
        ("quantizer = ['q4_0']", ["quantizer.0"]),
        ("not toml", ["not a readable TOML file"]),
    ],
)
def test_a_wrong_study_is_explained(tmp_path: Path, toml: str, words: list[str]) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(toml)
    with pytest.raises(ConfigError) as error:
        read_study(path)
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_the_thesis_is_a_study() -> None:
    study = read_study(ROOT / "configs" / "thesis.toml", models=[Path("m")], texts=[Path("t")])
    assert [label(mode) for mode in study.modes()] == [
        "q4_0", "q4_0_recentred", "q4_0_multizero 1", "q4_0_multizero 2", "q4_0_multizero 3",
        "q8_0", "q8_table basic", "q8_table balanced", "ggml:IQ4_NL", "ggml:Q4_K", "ggml:Q5_0",
    ]  # fmt: skip


def test_every_key_is_in_the_manual() -> None:
    from pyquant.study.config import SpeedConfig, StudyConfig

    manual = (ROOT / "configs" / "thesis.toml").read_text()
    for key in [*StudyConfig.model_fields, *SpeedConfig.model_fields]:
        assert re.search(rf"^(# )?{key} = |^\[+{key}\]+$", manual, re.MULTILINE), key


def test_a_text_that_is_not_utf8(bench: Bench, tmp_path: Path) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes("señor ".encode("latin-1") * 100)
    study = read_study(bench.config, models=bench.models, texts=[latin])
    with pytest.raises(TextError, match="not UTF-8: byte 2 is 0xf1"):
        run_study(study, tmp_path / "results")
    assert not (tmp_path / "results" / "study.json").exists()


@pytest.mark.parametrize("key", ["models", "texts"])
def test_the_same_file_twice_is_refused(bench: Bench, tmp_path: Path, key: str) -> None:
    files = {"models": bench.models[:1], "texts": [bench.text]}
    study = read_study(bench.config, **{**files, key: files[key] * 2})
    with pytest.raises(ConfigError, match=f"the same {key[:-1]} as"):
        run_study(study, tmp_path / "results")


@pytest.mark.parametrize("name", ["study.json", "run"])
def test_another_versions_folder_is_left_alone(bench: Bench, copy: Path, name: str) -> None:
    path = copy / name if name == "study.json" else next((copy / "runs").glob("quality-*"))
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "schema": content["schema"][:-1] + "7"}))
    before = snapshot(copy)
    with pytest.raises(StudyError, match=r"written by another version of pyquant.*Nothing was changed"):
        bench.run(copy)
    assert snapshot(copy) == before


def test_a_folder_with_other_things_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StudyError, match=r"not a results folder: 'thesis\.tex' is in it"):
        bench.run(tmp_path)


def test_validate_finds_a_changed_number(copy: Path) -> None:
    store = Store(copy)
    assert all(store.problem(key) is None for key in store.finished())
    key = next(key for key in store.finished() if key.startswith("quality"))
    path = copy / "runs" / f"{key}.json"
    record = json.loads(path.read_text())
    record["result"]["perplexity"] *= 0.99
    path.write_text(json.dumps(record))
    assert "changed since it was written" in store.problem(key)
    path.write_text(path.read_text()[:-100])
    assert "broken" in store.problem(key)


# Reports, figures, tables


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


def test_the_reports_numbers_are_the_files(finished: Path) -> None:
    page = Cells((finished / "report.html").read_text())
    rows = {row["quantizer"]: row for row in results_table(read_results(Store(finished)))}
    assert list(rows) == LABELS
    columns = {column.key: column for column in (*QUALITY, *CODES)}
    shown = {(row, key) for row, key, _, _ in page.cells}
    known = {(name, key) for name, row in rows.items() for key in columns if row[key] is not None}
    assert shown == {one for one in known if one[1] not in {c.key for c in CODES} or rows[one[0]]["entropy"]}
    for name, key, value, text in page.cells:
        assert value == rows[name][key]
        assert text == columns[key].text(rows[name])


def test_the_tables_numbers_are_the_runs(finished: Path) -> None:
    store = Store(finished)
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


def test_the_report_is_one_file_with_its_data(finished: Path) -> None:
    text = (finished / "report.html").read_text()
    page = Cells(text)
    assert page.outside == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert "Small &amp; &lt;bold&gt;" in text
    found = json.loads(page.data)
    runs = {path.stem: json.loads(path.read_text())["result"] for path in (finished / "runs").iterdir()}
    for row in found:
        assert row["size"] == runs[row["keys"]["size"]]
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
def test_export(finished: Path, tmp_path: Path, ending: str) -> None:
    expected = results_table(read_results(Store(finished)))
    path = tmp_path / f"out{ending}"
    query = 'SELECT quantizer, perplexity, "bytes" FROM results'
    counts = export(finished, path)
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
        export(finished, path)


def test_other_tables_and_endings(finished: Path, tmp_path: Path) -> None:
    assert export(finished, tmp_path / "runs.csv", table="zero_runs")["zero_runs"] % 16 == 0
    with pytest.raises(ConfigError, match="table: 'rows' is not one of results, codes, zero_runs"):
        export(finished, tmp_path / "x.csv", table="rows")
    with pytest.raises(OutputError, match=r"must end in one of \.csv, \.parquet"):
        export(finished, tmp_path / "x.xlsx")


@pytest.mark.slow
def test_every_figure_of_the_thesis(bench: Bench, tmp_path: Path) -> None:
    results = tmp_path / "results"
    study = read_study(ROOT / "configs" / "thesis.toml", models=bench.models[:1], texts=[bench.text], ctx=32)
    run_study(study.model_copy(update={"measure": SAME_EVERYWHERE}), results)
    scripts = [*(ROOT / "analysis").glob("figure_*.py"), ROOT / "analysis" / "perplexity.py"]
    assert len(scripts) == 10
    for script in scripts:
        made = []
        for folder in (tmp_path / "one", tmp_path / "two"):
            command = [sys.executable, script, results, "--output", folder]
            subprocess.run(command, check=True, capture_output=True)
            made.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert made[0] == made[1], script
        assert f"{script.stem}-model-1.svg" in made[0]


# Commands


def pyquant(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pyquant", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def test_commands(finished: Path, copy: Path, tmp_path: Path) -> None:
    listed = json.loads(pyquant("study", "ls", finished, "--json").stdout)
    assert len(listed) == 18
    assert json.loads(pyquant("study", "show", finished, listed[0]["key"]).stdout)["key"] == listed[0]["key"]
    assert [
        row["quantizer"] for row in json.loads(pyquant("study", "show", finished, "--json").stdout)
    ] == LABELS
    assert "model-1.gguf on text.txt" in pyquant("study", "show", finished).stdout
    assert pyquant("study", "validate", finished).stdout == f"{finished}: 18 runs, all sound\n"
    broken = copy / "runs" / f"{listed[0]['key']}.json"
    broken.write_text("{}")
    found = pyquant("study", "validate", copy)
    assert found.returncode == 1
    assert "1 of 18 runs are unsound" in found.stderr
    nothing = pyquant("study", "ls", tmp_path)
    assert nothing.returncode == 1
    assert "no study in this folder" in nothing.stderr


# A cluster


@pytest.fixture
def scheduler(tmp_path: Path):
    """A Dask scheduler and a worker of it; the scheduler's file."""
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    local = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    commands = [
        [*dask, "scheduler", "--port", "0", *local],
        [*dask, "worker", "--nthreads", "1", "--local-directory", str(tmp_path), *local],
    ]
    with (tmp_path / "dask.log").open("w") as log:
        processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
        yield file
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def test_a_cluster_makes_the_same_results(
    bench: Bench, tmp_path: Path, undisturbed: dict[str, dict], scheduler: Path
) -> None:
    end = time.monotonic() + 60
    while not scheduler.is_file() and time.monotonic() < end:
        time.sleep(0.05)
    done = subprocess.run(
        bench.command(tmp_path / "results", "--cluster", scheduler),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "results") == undisturbed


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("none.json", "no such scheduler file"),
        ("somewhere", r"expected a scheduler file \(.json\) or tcp://"),
    ],
)
def test_a_cluster_that_is_not_there(bench: Bench, tmp_path: Path, where: str, message: str) -> None:
    pytest.importorskip("distributed")
    with pytest.raises((ConfigError, StudyError), match=message):
        bench.run(tmp_path / "results", cluster=where)
