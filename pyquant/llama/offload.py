"""Layers of a model on a GPU: as llama.cpp's environment variables say, which commands' options set too."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from pyquant import _core, limits
from pyquant.errors import ConfigError

logger = logging.getLogger("pyquant.llama.context")

GPU_LAYERS, MAIN_GPU, TENSOR_SPLIT = "LLAMA_ARG_N_GPU_LAYERS", "LLAMA_ARG_MAIN_GPU", "LLAMA_ARG_TENSOR_SPLIT"
FLAGS = {GPU_LAYERS: "gpu-layers", MAIN_GPU: "main-gpu", TENSOR_SPLIT: "tensor-split"}
ALL = -1  # layers, in llama.cpp


@dataclass(frozen=True)
class Offload:
    """What of a model is on devices.

    gpu_layers: how many layers from the last on, the output counted as one; ALL of them.
    main_gpu: the one device that takes them; None: llama.cpp shares them out to all.
    tensor_split: shares of the devices; (): by the memory that is free.
    """

    gpu_layers: int = 0
    main_gpu: int | None = None
    tensor_split: tuple[float, ...] = ()

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> Offload:
        """Read options by the names of llama.cpp's variables. Raises ConfigError: it names both."""
        layers, gpu, split = (settings.get(name) or "" for name in (GPU_LAYERS, MAIN_GPU, TENSOR_SPLIT))
        return cls(
            0 if not layers else ALL if layers in ("all", "auto") else _whole(GPU_LAYERS, layers),
            _whole(MAIN_GPU, gpu) if gpu else None,
            tuple(_share(part) for part in split.replace("/", ",").split(",")) if split else (),
        )

    def is_whole(self, n_layers: int) -> bool:
        """Say whether one device has all of a model: its layers, and the output."""
        return (self.gpu_layers == ALL or self.gpu_layers > n_layers) and (
            self.main_gpu is not None or len(_core.devices()) == 1
        )

    def check(self) -> None:
        """Refuse what this build or machine cannot do. Raises ConfigError."""
        if not self.gpu_layers:
            return
        gpus = _core.devices()
        if not gpus:
            raise ConfigError(f"gpu-layers: {no_device()}")
        n = len(gpus)
        if self.main_gpu is not None and self.main_gpu >= n:
            raise ConfigError(
                f"main-gpu: {self.main_gpu}: there are {n}, from 0 on; `pyquant info` lists them"
            )
        if len(self.tensor_split) > n:
            raise ConfigError(
                f"tensor-split: {len(self.tensor_split)} shares, and there are {n} devices; "
                f"`pyquant info` lists them"
            )

    def place(self, llama: ModuleType, parameters: Any) -> tuple[Any, Any]:
        """Put it into the parameters of llama.cpp's models. Returns: arrays that they point to."""
        devices = (ctypes.c_void_p * 1)()  # none: else llama.cpp would use a GPU for large products
        shares = (ctypes.c_float * llama.llama_max_devices())(*self.tensor_split)
        parameters.n_gpu_layers = self.gpu_layers
        if not self.gpu_layers:
            parameters.devices = ctypes.cast(devices, ctypes.c_void_p)
        if self.main_gpu is not None:
            parameters.split_mode, parameters.main_gpu = llama.LLAMA_SPLIT_MODE_NONE, self.main_gpu
        if self.tensor_split:
            parameters.tensor_split = shares
        return devices, shares


ON_CPU = Offload()


def no_device() -> str:
    """Say why there is no GPU, and what to do."""
    backends = _core.build_info()["gpu_backends"]
    if not backends:
        return "this pyquant is built for the CPU alone; `make GPU=vulkan` (cuda, metal, hip) builds another"
    return (
        f"{backends} finds no device; install its driver, or leave the option out "
        f"(GGML_VK_VISIBLE_DEVICES=0 also lets Vulkan compute on a CPU)"
    )


def offload_here() -> Offload:
    """Return what the environment asks for; nothing, which is said once, where there is no GPU.

    Raises ConfigError.
    """
    wanted = Offload.read(os.environ)
    if wanted.gpu_layers and not _core.devices():
        say_once(f"{GPU_LAYERS} is left out: {no_device()}")
        return ON_CPU
    wanted.check()
    return wanted


@cache
def say_once(text: str) -> None:
    """Log a warning, the same only once."""
    logger.warning("%s", text)


def _whole(name: str, text: str) -> int:
    try:
        return int(limits.GPU.parse(text))
    except ValueError as error:
        word = ", nor all" if name == GPU_LAYERS else ""
        raise ConfigError(f"{FLAGS[name]} ({name}): {error}{word}") from None


def _share(text: str) -> float:
    try:
        return float(limits.GPU_SHARE.parse(text))
    except ValueError as error:
        raise ConfigError(f"{FLAGS[TENSOR_SPLIT]} ({TENSOR_SPLIT}): {error}") from None
