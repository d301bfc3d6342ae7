"""Commands on a GPU, or on a driver that plays one."""

from __future__ import annotations

import json
from typing import Any

from tests.support.command import ENVIRONMENT, run

# Vulkan leaves drivers out that compute on the CPU, unless a device is named. F16 is left out as the CPU
# computes in F32: on an F16 model statistics else differ by 1 %.
ENVIRONMENT_OF_GPU = {**ENVIRONMENT, "GGML_VK_VISIBLE_DEVICES": "0", "GGML_VK_DISABLE_F16": "1"}
PATIENCE = 500  # seconds: a CPU that plays a GPU compiles every shader first


def result(*arguments: object, layers: int | str) -> dict[str, Any]:
    """Run a command with so many layers there; give what it prints as JSON."""
    done = run(*arguments, "--gpu-layers", layers, "--json", environment=ENVIRONMENT_OF_GPU, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
