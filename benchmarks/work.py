"""The work of the speed benchmarks: the paper's three networks on random samples of the right shape.

Clients have as many samples as in the paper, but there are fewer clients, so that the plain loop ends within
minutes. A round is the same work for each program: every client tests the model it receives, trains five
epochs in batches of ten, and tests its trained model.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from fedcap import models
from fedcap.products import chosen_products, fast_products

ALL_THREADS = torch.get_num_threads()
"""The default of torch."""


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with this number of threads, in torch and in NumPy's libraries; then restore the number."""
    with threadpool_limits(count):
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class Work:
    """One network and the clients that train it."""

    name: str
    model: str
    shape: tuple[int, ...]
    classes: int
    clients: int
    train: int
    test: int

    @cached_property
    def data(self) -> tuple[Tensor, Tensor]:
        """Random samples and labels: each client's training part, then its test part."""
        generator = torch.Generator().manual_seed(0)
        count = self.clients * (self.train + self.test)
        x = torch.randn(count, *self.shape, generator=generator)
        return x, torch.randint(self.classes, (count,), generator=generator)

    @property
    def owners(self) -> Tensor:
        """The client of each sample."""
        return torch.arange(self.clients).repeat_interleave(self.train + self.test)

    @property
    def tests(self) -> Tensor:
        """Which samples are for testing."""
        return (torch.arange(self.train + self.test) >= self.train).repeat(self.clients)

    def settings(self) -> dict[str, Any]:
        """Return the settings of an experiment on this work."""
        dataset = {"data": self.data, "client": self.owners, "test": self.tests}
        return {"dataset": dataset, "model": self.model, "training": {"lr": 0.01}}

    def build(self) -> nn.Module:
        """Return a fresh network."""
        return models.builder(self.model, self.shape, self.classes)()

    def products(self, batch: int = 1) -> list[tuple[int, int, int]]:
        """Return the matrix products of one training step, as rows × inner × columns.

        Forward, backward to weights and backward to inputs each take a layer's products once; the first
        layer needs no gradient of its inputs.
        """
        found: list[tuple[int, int, int]] = []
        module = self.build()

        def count(layer: nn.Module, _: object, output: Tensor) -> None:
            weight = layer.weight
            assert isinstance(weight, Tensor)
            rows, inner, columns = output.numel() // len(weight), weight[0].numel(), len(weight)
            gradients = [(columns, rows, inner), (rows, columns, inner)]
            found.extend([(rows, inner, columns), *gradients[: 2 if found else 1]])

        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(count)
        with torch.no_grad():
            module(torch.zeros(batch, *self.shape))
        return found

    def flops(self) -> float:
        """Return the floating-point operations of one training step on one sample."""
        return sum(2.0 * rows * inner * columns for rows, inner, columns in self.products())


WORK = (
    Work("CIFAR-10", "cnn-cifar10", (3, 32, 32), 10, 8, 225, 75),
    Work("EMNIST", "cnn-emnist", (1, 28, 28), 62, 8, 225, 75),
    Work("WISDM", "cnn-wisdm", (3, 1, 200), 6, 12, 112, 38),
)


def peak_memory() -> float:
    """Return the peak memory of this process in GB; `getrusage` would include its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 2**20


def product_seconds(rows: int, inner: int, columns: int, seconds: float = 0.5) -> float:
    """Return the least time of a matrix product by MKL or oneDNN, with torch's present number of threads."""
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    out = torch.empty(rows, columns)
    best = float("inf")
    for products in ("mkl", chosen_products()):
        with fast_products(products):
            torch.mm(a, b, out=out)
            end = time.perf_counter() + seconds / 2
            while time.perf_counter() < end:
                began = time.perf_counter()
                torch.mm(a, b, out=out)
                best = min(best, time.perf_counter() - began)
    return best


def matmul_peak(size: int = 1536, seconds: float = 1.5) -> float:
    """Return the operations a second of a square matrix product by the faster library."""
    return 2 * size**3 / product_seconds(size, size, size, seconds)
