"""A study that is short of room or of open files, or finds its list of hashes broken, loses nothing."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pyquant.study.sources import read_sources
from pyquant.study.store import Store
from tests.support.studies import Lab, contents


@pytest.fixture(scope="module")
def config(lab: Lab) -> Path:
    return lab.write("short.toml", ["codes", "size"])


@pytest.fixture(scope="module")
def undisturbed(lab: Lab, config: Path) -> dict[str, dict]:
    lab.run(lab.folder / "short", config)
    return contents(lab.folder / "short")


def run(lab: Lab, config: Path, results: Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyquant", "study", "run", config, "--model", lab.models[0]]
    command += ["--text", lab.text, "--results", results, "--workers", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.mark.ci
@pytest.mark.parametrize("n_files", [8])
def test_few_open_files(n_files: int, lab: Lab, config: Path, tmp_path: Path, undisturbed: dict) -> None:
    results = tmp_path / "results"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, n_files))

    short = run(lab, config, results, preexec_fn=limit)
    assert short.returncode == 1
    said = (
        f"{results}: Too many open files; `ulimit -n 1024` allows more; the same command goes on from there"
    )
    assert short.stderr.splitlines()[-1] == f"pyquant: {said}"
    assert run(lab, config, results).returncode == 0
    assert contents(results) == undisturbed


@pytest.mark.ci
@pytest.mark.parametrize("room", [12, 64])
def test_a_full_disk(room: int, lab: Lab, config: Path, tmp_path: Path, undisturbed: dict) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}k", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root may mount a file system")
    try:
        full = run(lab, config, disk / "results")
        assert full.returncode == 1
        assert "Traceback" not in full.stderr
        assert f"pyquant: {disk}/results/" in full.stderr
        assert "are free in" in full.stderr or "No space left on device" in full.stderr
        assert contents(disk / "results").items() <= undisturbed.items()
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        assert run(lab, config, disk / "results").returncode == 0
        assert contents(disk / "results") == undisturbed
    finally:
        subprocess.run(["umount", disk], check=True)


def broken_hashes(model: Path) -> list[str]:
    sound = {"seen": [[model.stat().st_size, model.stat().st_mtime_ns, model.stat().st_ino]]}
    entries = [None, 3, [], {}, sound, {**sound, "sha256": None}, {**sound, "sha256": "x" * 64}]
    return ["", "[", "[]", "null", "3", "\0", *(json.dumps({str(model): entry}) for entry in entries)]


def test_broken_hashes_are_made_again(lab: Lab, tmp_path: Path) -> None:
    model, hashes = lab.models[0].resolve(), tmp_path / "hashes.json"
    (expected,) = read_sources([model], hashes, None)
    sound = json.loads(hashes.read_text())
    for content in broken_hashes(model):
        hashes.write_text(content)
        assert read_sources([model], hashes, None) == [expected]
        assert json.loads(hashes.read_text()) == sound
    (tmp_path / "unreadable").mkdir()  # a folder of that name is said, by name
    with pytest.raises(Exception, match=r"unreadable: a folder"):
        read_sources([model], tmp_path / "unreadable", None)


@pytest.mark.slow
def test_a_broken_result_is_named(lab: Lab, config: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    lab.run(results, config)
    key = Store(results).finished()[0]
    path = results / "runs" / f"{key}.json"
    path.write_text("{")
    refused = run(lab, config, results)
    assert refused.returncode == 1
    assert f"{path}: broken; remove it" in refused.stderr
    path.unlink()
    assert run(lab, config, results).returncode == 0
