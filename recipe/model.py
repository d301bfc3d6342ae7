"""The model: a small Llama, in torch, as it is trained."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipe.shape import Shape


class Norm(nn.Module):
    def __init__(self, n: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on neighboring pairs, llama.cpp's order for this architecture.

    x: (batch, n_ctx, heads, head). cos, sin: (n_ctx, 1, head / 2).
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Layer(nn.Module):
    # Parameters have the names of GGUF's tensors: the conversion only writes them.
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        n, kv = shape.n_embd, shape.n_head_kv * shape.head
        self.attn_norm = Norm(n, shape.norm_eps)
        self.attn_q = nn.Linear(n, n, bias=False)
        self.attn_k = nn.Linear(n, kv, bias=False)
        self.attn_v = nn.Linear(n, kv, bias=False)
        self.attn_output = nn.Linear(n, n, bias=False)
        self.ffn_norm = Norm(n, shape.norm_eps)
        self.ffn_gate = nn.Linear(n, shape.n_ff, bias=False)
        self.ffn_up = nn.Linear(n, shape.n_ff, bias=False)
        self.ffn_down = nn.Linear(shape.n_ff, n, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, n_ctx, _ = x.shape
        shape = self.shape
        normed = self.attn_norm(x)
        q = self.attn_q(normed).view(batch, n_ctx, shape.n_head, shape.head)
        k = self.attn_k(normed).view(batch, n_ctx, shape.n_head_kv, shape.head)
        v = self.attn_v(normed).view(batch, n_ctx, shape.n_head_kv, shape.head)
        q, k = (rotate(y.float(), cos, sin).to(v.dtype) for y in (q, k))
        k, v = (y.repeat_interleave(shape.n_head // shape.n_head_kv, 2) for y in (k, v))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(y.transpose(1, 2).reshape(batch, n_ctx, shape.n_embd))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.n_vocab, shape.n_embd)
        self.blk = nn.ModuleList(Layer(shape) for _ in range(shape.n_layer))
        self.output_norm = Norm(shape.n_embd, shape.norm_eps)
        self.output = nn.Linear(shape.n_embd, shape.n_vocab, bias=False)
        frequency = shape.rope_base ** -(torch.arange(0, shape.head, 2) / shape.head)
        angle = torch.outer(torch.arange(shape.n_ctx), frequency)[:, None]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self._initialize()

    def _initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith(("attn_output.weight", "ffn_down.weight")):
                nn.init.zeros_(parameter)  # every layer begins as the identity
            elif name == "token_embd.weight":
                nn.init.normal_(parameter, std=0.5)
            elif name == "output.weight":
                nn.init.normal_(parameter, std=0.005)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.6 * parameter.shape[1] ** -0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, n_ctx) token numbers to (batch, n_ctx, n_vocab) logits."""
        n = tokens.shape[1]
        x = self.token_embd(tokens)
        for layer in self.blk:
            x = layer(x, self.cos[:n], self.sin[:n])
        return self.output(self.output_norm(x))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets, nats per token."""
        return F.cross_entropy(self(tokens).float().flatten(0, 1), targets.flatten())
