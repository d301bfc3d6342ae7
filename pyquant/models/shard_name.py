"""Names of the files of a split model."""

from __future__ import annotations

import re
from pathlib import Path

SHARD_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.\w+)", re.DOTALL)


def named_shards(path: Path) -> list[Path]:
    """Name all files of the model of which `path` is a shard by its name; of another name only itself."""
    match = SHARD_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    stem, _, n_shards, suffix = match.groups()
    return [path.with_name(f"{stem}-{i:05}-of-{n_shards}{suffix}") for i in range(1, int(n_shards) + 1)]
