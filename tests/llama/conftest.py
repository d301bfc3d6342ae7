"""A GPU, for tests of what runs there."""

from __future__ import annotations

import json

import pytest

from tests.support.command import run
from tests.support.gpu import ENVIRONMENT_OF_GPU


@pytest.fixture(scope="session")
def gpu() -> str:
    """The first device's name."""
    devices = json.loads(run("info", "--json", environment=ENVIRONMENT_OF_GPU).stdout)["devices"]
    if not devices:
        pytest.skip("no GPU: `make GPU=vulkan test-gpu` with a driver, such as Debian's mesa-vulkan-drivers")
    return devices[0]["name"]
