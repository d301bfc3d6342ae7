"""The memory that a container leaves to a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.machine import cgroup, memory

GB = 1_000_000_000


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_dot_", ".")).write_text(f"{content}\n")


def test_the_least_of_all_groups_above_counts(tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "root"
    own.write_text("0::/pod/container\n")
    write(root / "pod", memory_dot_max=8 * GB, memory_dot_current=7 * GB)
    write(root / "pod" / "container", memory_dot_max=4 * GB, memory_dot_current=2 * GB)
    assert cgroup.memory_left(own, root) == GB
    # Files in memory make room: a mapped model is among them.
    write(root / "pod", memory_dot_stat=f"anon {4 * GB}\ninactive_file {2 * GB}\nactive_file {GB}")
    assert cgroup.memory_left(own, root) == 2 * GB
    write(root / "pod" / "container", memory_dot_max="max")
    assert cgroup.memory_left(own, root) == 4 * GB


def test_of_the_first_version(tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "root"
    own.write_text("3:cpuset:/job\n4:memory:/job\n0::/\n")
    write(root / "memory" / "job", memory_dot_limit_in_bytes=3 * GB, memory_dot_usage_in_bytes=2 * GB,
          memory_dot_stat=f"inactive_file 1\ntotal_inactive_file {GB // 2}")  # fmt: skip
    assert cgroup.memory_left(own, root) == 3 * GB // 2


@pytest.mark.parametrize("content", ["", "0::/\n", "0::/elsewhere/than/here\n"])
def test_without_a_limit(content: str, tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "root"
    own.write_text(content)
    root.mkdir()
    assert cgroup.memory_left(own, root) is None
    assert cgroup.memory_left(tmp_path / "missing", root) is None


def test_in_a_container_its_own_group_is_the_top(tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "root"
    own.write_text("0::/of/the/host\n")
    write(root, memory_dot_max=GB, memory_dot_current=GB // 4)
    assert cgroup.memory_left(own, root) == 3 * GB // 4


def test_what_is_available_is_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    of_machine = 1024 * int(lines["MemAvailable"].removesuffix("kB"))
    monkeypatch.setattr(cgroup, "memory_left", lambda: 12_345)
    assert memory.available_memory() == 12_345
    monkeypatch.setattr(cgroup, "memory_left", lambda: 1 << 60)
    assert memory.available_memory() == pytest.approx(of_machine, rel=0.5)
