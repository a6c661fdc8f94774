"""Which library multiplies float32 matrices: MKL or oneDNN, both of which are inside PyTorch.

`torch.mm` uses MKL. On AMD processors MKL runs its AVX2 kernels, although most of them have AVX-512; oneDNN
uses AVX-512 there and is up to 2.4 times as fast. PyTorch gives float32 products to oneDNN only if it may
compute them in bfloat16. On a processor with fast bfloat16 products (Intel AMX) that would cost accuracy.
So oneDNN is chosen only where MKL does not use AVX-512, and where a fixed product shows that its error is
that of float32. The choice is made once per process and takes no timing, so it is the same in each run.

The environment variable `FEDCAP_PRODUCTS` (`onednn` or `mkl`) overrides the choice. Results differ between
the two in the last bits, as they do between kinds of processors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import torch

from fedcap.errors import InputError

Products = Literal["onednn", "mkl"]

_VARIABLE = "FEDCAP_PRODUCTS"
_LARGEST_ERROR = 1e-6
"""The largest relative error of a float32 product; a bfloat16 product has about 2e-3."""

_ONEDNN = cast("Any", torch.backends.mkldnn)
_lock = threading.RLock()
_depth = 0
_callers_settings: tuple[bool, str] = (True, "none")
_current: ContextVar[Products | None] = ContextVar("products", default=None)


@contextmanager
def fast_products(products: Products | None = None) -> Iterator[None]:
    """Multiply float32 matrices with the chosen library inside the block; then restore the caller's settings.

    If another process has made the choice, give it as `products`; blocks inside this one then use it, too.
    The setting holds for the whole process, so blocks in several threads share it: the first to begin sets
    it, and the last to end restores it.
    """
    if _current.get() == (products or _current.get() or "none"):  # the block around this one has set it
        yield
        return
    products = products or chosen_products()
    token = _current.set(products)
    try:
        if products == "mkl":
            yield
        else:
            with _onednn():
                yield
    finally:
        _current.reset(token)


@contextmanager
def _onednn() -> Iterator[None]:
    _require_float32()
    global _depth, _callers_settings
    with _lock:
        if _depth == 0:
            _callers_settings = _settings()
            _set(True, "bf16")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _set(*_callers_settings)


def current_products() -> Products:
    """Return the library of the innermost `fast_products` block, outside of one the chosen library."""
    return _current.get() or chosen_products()


@cache
def chosen_products() -> Products:
    """Return the library for this process: the one that `FEDCAP_PRODUCTS` names, else the faster one."""
    requested = os.environ.get(_VARIABLE, "")
    if requested == "onednn":
        _require_float32()
        return "onednn"
    if requested not in ("", "mkl"):
        raise InputError(f"{_VARIABLE} should be 'onednn' or 'mkl' (got {requested!r})", code="bad-value")
    slow = not requested and mkl_avoids_avx512(_cpu_info())
    return "onednn" if slow and onednn_error() < _LARGEST_ERROR else "mkl"


def mkl_avoids_avx512(cpu_info: str) -> bool:
    """Return whether the processor has AVX-512 and MKL does not use it, given Linux's `/proc/cpuinfo`."""
    return "AuthenticAMD" in cpu_info and " avx512f" in cpu_info and torch._C.has_mkl


@cache
def onednn_error() -> float:
    """Return the relative error of a fixed product by oneDNN; infinity if there is no oneDNN."""
    if not torch._C._has_mkldnn or not hasattr(_ONEDNN, "matmul"):  # PyTorch before 2.9 has no such setting
        return float("inf")
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    with _lock:
        before = _settings()
        _set(True, "bf16")
        try:
            found = left @ right
        finally:
            _set(*before)
    return float((found.double() - exact).norm() / exact.norm())


def _require_float32() -> None:
    if onednn_error() >= _LARGEST_ERROR:
        raise InputError(
            f"oneDNN does not multiply float32 matrices exactly enough on this processor (relative error"
            f" {onednn_error():.1g}, float32 has 3e-07): set {_VARIABLE}=mkl",
            code="inexact-products",
        )


def _settings() -> tuple[bool, str]:
    return _ONEDNN.enabled, _ONEDNN.matmul.fp32_precision


def _set(enabled: bool, precision: str) -> None:
    _ONEDNN.enabled, _ONEDNN.matmul.fp32_precision = enabled, precision


def _cpu_info() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return ""
