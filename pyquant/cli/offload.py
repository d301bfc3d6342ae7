"""Options for GPUs, which several commands share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, ClassVar, Optional

import typer


@dataclass(frozen=True)
class OffloadOptions:
    """What of a model is computed on GPUs; without an option, what llama.cpp's variable says."""

    panel: ClassVar[str] = "GPU"

    gpu_layers: Annotated[
        Optional[str],
        typer.Option(
            "--gpu-layers",
            "-ngl",
            metavar="N|all",
            help="Layers on the GPU, from the last on; default: LLAMA_ARG_N_GPU_LAYERS, or none.",
        ),
    ] = None
    main_gpu: Annotated[
        Optional[str],
        typer.Option(
            "--main-gpu",
            "-mg",
            metavar="N",
            help="Use this device alone, by its place in `pyquant info`; default: LLAMA_ARG_MAIN_GPU or all.",
        ),
    ] = None
    tensor_split: Annotated[
        Optional[str],
        typer.Option(
            "--tensor-split",
            "-ts",
            metavar="N,N,...",
            help="Shares of the devices; default: LLAMA_ARG_TENSOR_SPLIT, or by the memory that is free.",
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Say whether there is an option."""
        return (self.gpu_layers, self.main_gpu, self.tensor_split) != (None, None, None)

    def use(self) -> None:
        """Let models be loaded so, in processes that this one starts too.

        Raises ConfigError: there is no such device, or a value does not fit.
        """
        if not self.given:
            return
        from pyquant.errors import ConfigError
        from pyquant.llama.offload import GPU_LAYERS, MAIN_GPU, TENSOR_SPLIT, Offload

        given = {GPU_LAYERS: self.gpu_layers, MAIN_GPU: self.main_gpu, TENSOR_SPLIT: self.tensor_split}
        for name, value in given.items():
            if value is not None:
                os.environ[name] = value
        offload = Offload.read(os.environ)
        if self.gpu_layers is None and not offload.gpu_layers:
            raise ConfigError("--main-gpu, --tensor-split: are of --gpu-layers; give it too")
        offload.check()
