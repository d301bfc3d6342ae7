"""What killed runs leave for the next one to go on from, damaged; and the next run."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import calibrate_model
from pyquant.fit.method.quantize import quantize
from tests.support.stats import everything
from tests.trial.mutations import Use
from tests.trial.samples import OUTPUT_SIDE, QUANTIZED, STOPPED, STOPPED_LATE, Samples


def resumed(folder: str, options: dict[str, Any]) -> Callable[[Samples], Use]:
    """A calibration that takes up the sums in a folder of samples, and the statistics that come out of it."""

    def make(samples: Samples) -> Use:
        def use(path: Path) -> None:
            _copy(samples.folder / folder, path)
            output = path.with_name("stats")
            calibrate_model(samples.model_gguf, [samples.text_txt], output, **options, threads=1, force=True)
            everything(output)

        return use

    return make


stopped_early = resumed("stopped", STOPPED)
stopped_late = resumed("stopped-late", STOPPED_LATE)
stopped_gradients = resumed("stopped-gradients", OUTPUT_SIDE)


def gone_on(samples: Samples) -> Use:
    """The one command, of which a stage was finished and another one half done."""

    def use(path: Path) -> None:
        stages = path.parent / ".out.gguf.stages"
        shutil.rmtree(stages, ignore_errors=True)
        shutil.copytree(samples.folder / "killed" / stages.name, stages)
        shutil.copy(path, stages)
        output = path.with_name("out.gguf")
        done = quantize(
            samples.model_gguf, output, hessian=samples.stats_gguf, threads=1, force=True, **QUANTIZED
        )
        done.to_json()

    return use


def _copy(folder: Path, damaged: Path) -> None:
    """Puts the other files of a folder beside the damaged one."""
    for file in folder.iterdir():
        if file.name != damaged.name:
            with contextlib.suppress(shutil.SameFileError):
                shutil.copy(file, damaged.parent)
