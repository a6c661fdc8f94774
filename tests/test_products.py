"""The library for matrix products: float32's error, and the user's own settings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
from helpers import refused

from fedcap import products
from fedcap.products import chosen_products, current_products, fast_products, mkl_avoids_avx512

ZEN = "vendor_id : AuthenticAMD\nflags : fpu sse2 avx2 avx512f avx512bw\n"


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose oneDNN, whatever this processor computes with it."""
    monkeypatch.setattr(products, "onednn_error", lambda: 3e-7)
    monkeypatch.setattr(products, "chosen_products", lambda: "onednn")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Make the choice again, in the test and after it."""
    chosen_products.cache_clear()
    yield
    chosen_products.cache_clear()


def settings() -> tuple[bool, str]:
    return torch.backends.mkldnn.enabled, torch.backends.mkldnn.matmul.fp32_precision


def test_the_chosen_products_have_the_error_of_float32() -> None:
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(300, 300, generator=generator) for _ in range(2))
    with fast_products():
        found = left @ right
    exact = left.double() @ right.double()
    assert float((found - exact).norm() / exact.norm()) < 1e-6


@pytest.mark.parametrize("precision", ["none", "tf32", "ieee"])
def test_the_users_settings_are_restored(onednn: None, precision: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = precision
    try:
        before = settings()
        with suppress(ZeroDivisionError), fast_products():
            with fast_products():
                assert settings() == (True, "bf16")
            assert settings() == (True, "bf16")
            raise ZeroDivisionError
        assert settings() == before
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def test_blocks_of_several_threads_restore_the_settings_when_the_last_ends(onednn: None) -> None:
    before, inside, leave = settings(), threading.Event(), threading.Event()

    def other() -> None:
        with fast_products():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with fast_products():
        thread.start()
        assert inside.wait(10)
    assert settings() == (True, "bf16")
    leave.set()
    thread.join()
    assert settings() == before


def test_nothing_is_set_with_mkl() -> None:
    before = settings()
    with fast_products("mkl"):
        assert settings() == before


def test_the_choice_of_another_process_holds_inside_its_block(onednn: None) -> None:
    before = settings()
    with fast_products("mkl"), fast_products():
        assert current_products() == "mkl"
        assert settings() == before
    assert current_products() == "onednn"


@pytest.mark.parametrize(
    ("cpu_info", "expected"),
    [
        (ZEN, True),
        (ZEN.replace("AuthenticAMD", "GenuineIntel"), False),
        (ZEN.replace(" avx512f avx512bw", ""), False),
        ("", False),
    ],
)
def test_only_amd_processors_with_avx512_need_onednn(cpu_info: str, expected: bool) -> None:
    assert mkl_avoids_avx512(cpu_info) is (expected and torch.backends.mkl.is_available())


@pytest.mark.parametrize(("error", "expected"), [(4e-7, "onednn"), (2e-3, "mkl")])
def test_onednn_is_chosen_only_if_it_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch, fresh: None, error: float, expected: str
) -> None:
    monkeypatch.delenv("FEDCAP_PRODUCTS", raising=False)
    monkeypatch.setattr(products, "_cpu_info", lambda: ZEN)
    monkeypatch.setattr(products, "onednn_error", lambda: error)
    assert chosen_products() == (expected if torch.backends.mkl.is_available() else "mkl")


def test_onednn_is_refused_where_it_is_not_exact(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setenv("FEDCAP_PRODUCTS", "onednn")
    monkeypatch.setattr(products, "onednn_error", lambda: 2e-3)
    with refused("inexact-products"):
        chosen_products()


def test_an_unknown_library_is_an_error(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setenv("FEDCAP_PRODUCTS", "cublas")
    with refused("bad-value"):
        chosen_products()


@pytest.mark.slow
def test_a_run_with_onednn_has_the_same_bits_for_any_number_of_workers(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Without the processor's bfloat16 products, oneDNN computes in float32 on each processor."""
    script = (
        "import sys, fedcap, hashlib\n"
        "if __name__ == '__main__':\n"
        "    from fedcap.products import chosen_products, onednn_error\n"
        "    assert chosen_products() == 'onednn' and onednn_error() < 1e-6\n"
        "    e = fedcap.Experiment(attack='ipm', rounds=2, workers=int(sys.argv[1]), model='cnn-cifar10',\n"
        "        dataset=__import__('own').DATA)\n"
        "    e.run(out=sys.argv[2])\n"
        "    print(hashlib.sha256(open(sys.argv[2] + '/checkpoint.safetensors', 'rb').read()).hexdigest())\n"
    )
    (tmp_path / "own.py").write_text(
        "import torch\n"
        "g = torch.Generator().manual_seed(0)\n"
        "DATA = (torch.randn(80, 3, 32, 32, generator=g), torch.randint(10, (80,), generator=g))\n"
    )
    (tmp_path / "main.py").write_text(script)
    found = set()
    for workers in (1, 2):
        done = subprocess.run(
            [sys.executable, "main.py", str(workers), str(tmp_path / f"run{workers}")],
            cwd=tmp_path,
            env={**os.environ, "FEDCAP_PRODUCTS": "onednn", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout.strip())
    assert len(found) == 1
