"""A small GPT: the transformer that the course plans, traces and trains where a text model is needed.

The size of the default is that of GPT-2 small (124 million parameters, Radford et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from course_lib.errors import CourseError


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT. ``width`` must be a multiple of ``heads``."""

    vocabulary: int = 50304  # GPT-2's 50257 words, rounded up to a multiple of 64
    context: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768

    def __post_init__(self) -> None:
        if min(self.vocabulary, self.context, self.layers, self.heads, self.width) < 1:
            raise CourseError("Every size of a GPT must be at least 1.")
        if self.width % self.heads:
            raise CourseError(
                f"The width {self.width} of a GPT must be a multiple of its {self.heads} heads."
            )


class GPTBlock(nn.Module):
    """Attention and a two-layer network, each behind a normalisation and beside a shortcut."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm1 = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.projection = nn.Linear(config.width, config.width)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, tokens, width))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class GPT(nn.Module):
    """Decoder-only transformer; input and output embeddings share one matrix."""

    def __init__(self, config: GPTConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or GPTConfig()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(GPTBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Token numbers (batch, tokens) to scores (batch, tokens, vocabulary)."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores
