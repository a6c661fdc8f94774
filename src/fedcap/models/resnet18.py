"""ResNet-18 (He et al., 2016) for small images, with group norm (Wu, He, 2018) instead of batch norm.

Batch statistics of clients with different data do not average well; group norm has none (Hsieh et al., 2020).
The first convolution is 3×3 with stride 1, and no pool follows it, as the images are 32×32.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from fedcap.models.base import Architecture, check_image, registry

_GROUPS = 32


def _convolution(inside: int, outside: int, size: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, size, stride=stride, padding=size // 2, bias=False),
        nn.GroupNorm(_GROUPS, outside),
    )


class _Block(nn.Module):
    """Two 3×3 convolutions and a shortcut around them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _convolution(inside, outside, 3, stride), nn.ReLU(), _convolution(outside, outside, 3, 1)
        )
        same = stride == 1 and inside == outside
        self.around = nn.Identity() if same else _convolution(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of convolutions and shortcut, after a ReLU."""
        return nn.functional.relu(self.residual(x) + self.around(x))


@registry.register("resnet18")
@dataclass(frozen=True)
class ResNet18(Architecture):
    """ResNet-18 with group norm, for small images: 11,173,962 weights for CIFAR-10."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network; inputs are C×H×W."""
        check_image("resnet18", shape, (1, 1))
        widths = (64, 64, 128, 256, 512)
        stages = [
            nn.Sequential(_Block(inside, outside, 1 if inside == outside else 2), _Block(outside, outside, 1))
            for inside, outside in pairwise(widths)
        ]
        return nn.Sequential(
            _convolution(shape[0], 64, 3, 1),
            nn.ReLU(),
            *stages,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, classes),
        )
