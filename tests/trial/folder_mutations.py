"""Results folders of studies, in which one file is damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from pyquant.study.store import digest_of
from tests.trial.mutations import Damage
from tests.trial.samples import Samples
from tests.trial.text_mutations import JsonMutation, damage_json


class FolderMutation(JsonMutation):
    """A file of a results folder, of which there is a copy."""

    def prepare(self, samples: Samples, folder: Path) -> None:
        results = self._sample[: self._sample.index("results") + len("results")]
        shutil.copytree(samples.folder / results, folder / results, dirs_exist_ok=True)
        super().prepare(samples, folder)
        self._path = self._sample


class RunMutation(FolderMutation):
    """A result of the metric that the sample ends in, whose digest is made right, so that it is read."""

    def prepare(self, samples: Samples, folder: Path) -> None:
        results, _, metric = self._sample.rpartition("/")
        (path, *_) = sorted((samples.folder / results / "runs").glob(f"{metric}-*.json"))
        self._sample = str(path.relative_to(samples.folder))
        super().prepare(samples, folder)

    def damage_of(self, source: Path) -> Damage:
        def change(content: bytes, rng: np.random.Generator) -> bytes:
            changed = damage_json(content, rng)
            try:
                record = json.loads(changed)
                return json.dumps({**record, "digest": digest_of(record)}).encode()
            except (ValueError, TypeError, AttributeError, RecursionError):
                return changed

        return change
