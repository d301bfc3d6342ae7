"""Muon for the matrices between layers, Adam for the rest.

Muon (Jordan et al., 2024) takes a step of equal length along every singular direction of the
averaged gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def orthogonalized(x: Tensor) -> Tensor:
    """The nearest matrix with all singular values about 1, by five Newton-Schulz steps in bfloat16."""
    transposed = x.shape[0] > x.shape[1]
    y = (x.T if transposed else x).bfloat16()
    y = y / (y.norm() + 1e-7)
    for _ in range(5):
        square = y @ y.T
        y = 3.4445 * y + (-4.7750 * square + 2.0315 * square @ square) @ y
    return (y.T if transposed else y).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters: list[nn.Parameter], *, lr: float, momentum: float, decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["average"] = torch.zeros_like(parameter)
                average = state["average"].lerp_(parameter.grad, 1 - momentum)
                direction = orthogonalized(torch.lerp(parameter.grad, average, momentum))
                rows, columns = parameter.shape
                parameter.mul_(1 - lr * group["decay"])
                parameter.add_(direction, alpha=-lr * max(1.0, rows / columns) ** 0.5)


def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """One optimizer for each kind of parameter. Their "lr" is the schedule's highest."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if name.startswith("blk.") and p.ndim == 2]
    norms = [p for _, p in named if p.ndim == 1]
    adam = torch.optim.Adam(
        [
            {"params": [model.token_embd.weight], "lr": 0.01},
            {"params": [model.output.weight], "lr": 0.003},
            {"params": norms, "lr": 0.005},
        ],
        betas=(0.9, 0.95),
        eps=1e-10,
        fused=True,
    )
    return [Muon(matrices, lr=0.02, momentum=0.95, decay=0.01), adam]
