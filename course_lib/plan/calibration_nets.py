"""What does a calibration run? Small networks that together hold the usual kinds of work at usual sizes.

No network of a library is among them: what is predicted later has not been measured before. Each is one
training step on random numbers, shaped like the stages of image models and the blocks of transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class CalibrationNet:
    """One network and the shape of one sample that it takes."""

    name: str
    build: Callable[[], nn.Module]
    sample: tuple[int, ...]


class _Residual(nn.Module):
    """A branch added to its input, or to what ``shortcut`` makes of it."""

    def __init__(
        self, branch: nn.Module, shortcut: nn.Module | None = None, last: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut or nn.Identity()
        self.last = last or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.branch(x) + self.shortcut(x))
        return out


class _Gate(nn.Module):
    """Squeeze and excitation: one weight for each channel."""

    def __init__(self, channels: int, narrow: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, narrow, 1),
            nn.ReLU(),
            nn.Conv2d(narrow, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x * self.layers(x)
        return out


class _Dense(nn.Module):
    """Layers that each add a few channels to all before them."""

    def __init__(self, channels: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + place * growth),
                nn.ReLU(),
                nn.Conv2d(channels + place * growth, 4 * growth, 1, bias=False),
                nn.BatchNorm2d(4 * growth),
                nn.ReLU(),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )
            for place in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = [x]
        for layer in self.layers:
            held.append(layer(torch.cat(held, 1)))
        return torch.cat(held, 1)


class _Attention(nn.Module):
    """Self-attention over tokens, by the fused operation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.mix(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        out: torch.Tensor = self.out(found.transpose(1, 2).reshape(batch, tokens, width))
        return out


class _LayerNorm2d(nn.Module):
    """LayerNorm over the channels of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return out


def _conv(  # noqa: PLR0917 - as nn.Conv2d has it
    cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
    ]
    return nn.Sequential(*layers, *([act] if act else []))


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def _head(channels: int, classes: int = 1000) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def _basic(width: int, stride: int, cin: int) -> nn.Module:
    branch = nn.Sequential(_conv(cin, width, 3, stride, act=_relu()), _conv(width, width, 3))
    return _Residual(branch, _conv(cin, width, 1, stride) if stride > 1 or cin != width else None, _relu())


def _bottleneck(cin: int, width: int, cout: int, stride: int, groups: int = 1) -> nn.Module:
    branch = nn.Sequential(
        _conv(cin, width, 1, act=_relu()),
        _conv(width, width, 3, stride, groups, _relu()),
        _conv(width, cout, 1),
    )
    return _Residual(branch, _conv(cin, cout, 1, stride) if stride > 1 or cin != cout else None, _relu())


def _inverted(  # noqa: PLR0917 - what a block is told by
    cin: int, cout: int, kernel: int, stride: int, gate: bool, act: Callable[[], nn.Module]
) -> nn.Module:
    wide = 6 * cin
    layers = [_conv(cin, wide, 1, act=act()), _conv(wide, wide, kernel, stride, wide, act())]
    layers += [_Gate(wide, max(8, cin // 4))] if gate else []  # type: ignore[list-item]
    branch = nn.Sequential(*layers, _conv(wide, cout, 1))
    return _Residual(branch) if stride == 1 and cin == cout else branch


def _basic_net() -> nn.Module:
    stem = [_conv(3, 64, 7, 2, act=_relu()), nn.MaxPool2d(3, 2, 1)]
    stages = [
        _basic(64, 1, 64),
        _basic(96, 2, 64),
        _basic(192, 2, 96),
        _basic(384, 2, 192),
        _basic(384, 1, 384),
    ]
    return nn.Sequential(*stem, *stages, *_head(384))


def _bottleneck_net(groups: int, scale: int) -> nn.Module:
    stem = [_conv(3, 32, 3, 2, act=_relu()), _conv(32, 64, 3, act=_relu()), nn.MaxPool2d(3, 2, 1)]
    stages, cin = [], 64
    for place, width in enumerate((48, 96, 192, 384)):
        stages.append(_bottleneck(cin, width * scale, width * 4, 2 if place else 1, groups))
        cin = width * 4
        stages.append(_bottleneck(cin, width * scale, cin, 1, groups))
    return nn.Sequential(*stem, *stages, *_head(cin))


def _mobile_net(act: Callable[[], nn.Module], kernel: int, gate: bool) -> nn.Module:
    stages: list[nn.Module] = [_conv(3, 24, 3, 2, act=act())]
    plan = ((24, 1), (32, 2), (32, 1), (48, 2), (48, 1), (96, 2), (96, 1), (160, 2), (160, 1))
    cin = 24
    for place, (cout, stride) in enumerate(plan):
        stages.append(_inverted(cin, cout, 3 if place % 3 else kernel, stride, gate, act))
        cin = cout
    return nn.Sequential(*stages, _conv(cin, 1024, 1, act=act()), *_head(1024))


def _plain_net() -> nn.Module:
    layers: list[nn.Module] = []
    cin = 3
    for width in (48, 96, 192, 320):
        layers += [
            nn.Conv2d(cin, width, 3, padding=1),
            _relu(),
            nn.Conv2d(width, width, 3, padding=1),
            _relu(),
        ]
        layers.append(nn.MaxPool2d(2))
        cin = width
    pooled = [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(cin * 49, 3072), _relu(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, *pooled, nn.Linear(3072, 1000))


def _dense_net() -> nn.Module:
    layers: list[nn.Module] = [_conv(3, 64, 7, 2, act=_relu()), nn.MaxPool2d(3, 2, 1)]
    cin = 64
    for count in (3, 4, 6):
        layers.append(_Dense(cin, 32, count))
        cin += 32 * count
        layers += [_conv(cin, cin // 2, 1, act=_relu()), nn.AvgPool2d(2)]
        cin //= 2
    return nn.Sequential(*layers, *_head(cin))


def _modern_net() -> nn.Module:
    """Patches, wide depthwise kernels, LayerNorm and GELU."""
    layers: list[nn.Module] = [nn.Conv2d(3, 72, 4, 4), _LayerNorm2d(72)]
    cin = 72
    for cout in (72, 144, 288):
        if cout != cin:
            layers += [_LayerNorm2d(cin), nn.Conv2d(cin, cout, 2, 2)]
        cin = cout
        layers.append(
            _Residual(
                nn.Sequential(
                    nn.Conv2d(cin, cin, 7, padding=3, groups=cin),
                    _ToTokens(),
                    nn.LayerNorm(cin),
                    nn.Linear(cin, 4 * cin),
                    nn.GELU(),
                    nn.Linear(4 * cin, cin),
                    _ToImage(),
                )
            )
        )
    return nn.Sequential(*layers, *_head(cin))


class _ToTokens(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1)


class _ToImage(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 3, 1, 2)


class _Flat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(2).transpose(1, 2)


class _Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


def _token_net(width: int, heads: int, patch: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, patch, patch), _Flat()]
    for _ in range(depth):
        layers += [
            _Residual(nn.Sequential(nn.LayerNorm(width), _Attention(width, heads))),
            _Residual(
                nn.Sequential(
                    nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
                )
            ),
        ]
    return nn.Sequential(*layers, nn.LayerNorm(width), _Mean(), nn.Linear(width, 1000))


def calibration_nets() -> Iterator[CalibrationNet]:
    """The networks in the order in which they are run: the kinds that most models are made of first."""
    image = (3, 224, 224)
    yield CalibrationNet("basic blocks", _basic_net, image)
    yield CalibrationNet("inverted residuals", lambda: _mobile_net(nn.ReLU6, 3, False), image)
    yield CalibrationNet("bottlenecks", lambda: _bottleneck_net(1, 1), image)
    yield CalibrationNet("tokens", lambda: _token_net(384, 6, 16, 2), image)
    yield CalibrationNet("gated inverted residuals", lambda: _mobile_net(nn.Hardswish, 5, True), image)
    yield CalibrationNet("plain convolutions", _plain_net, (3, 128, 128))
    yield CalibrationNet("grouped bottlenecks", lambda: _bottleneck_net(24, 2), image)
    yield CalibrationNet("dense blocks", _dense_net, image)
    yield CalibrationNet("wide depthwise kernels", _modern_net, image)
    yield CalibrationNet("wide tokens", lambda: _token_net(768, 12, 16, 1), image)
    yield CalibrationNet("smooth activations", lambda: _mobile_net(nn.SiLU, 3, True), (3, 160, 160))
