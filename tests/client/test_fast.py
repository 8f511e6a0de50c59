"""Compiled draws are the same bits; without numba, or told not to, the client goes on without them."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from hushgrad.client import fast, noise
from hushgrad.client.stream import RandomStream

KEY = b"f" * 32

needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed: pip install 'hushgrad[fast]'"
)


@pytest.fixture
def fresh():
    fast.kernels.cache_clear()
    yield
    fast.kernels.cache_clear()


@needs_numba
@pytest.mark.parametrize("scale", [2.0**8, 68_812.8, 2.0**20])
@pytest.mark.parametrize("count", [fast.WORTH, fast.WORTH + 1, 3 * 8192, 44_426])
def test_compiled_noise_has_the_same_bits(monkeypatch, scale, count):
    tables = noise.GaussianTables(scale)
    assert fast.kernels() is not None
    compiled = tables.draw(RandomStream(KEY), count)
    monkeypatch.setattr(fast, "kernels", lambda: None)
    plain = tables.draw(RandomStream(KEY), count)
    np.testing.assert_array_equal(compiled, plain)
    assert compiled.dtype == plain.dtype == np.int64


@needs_numba
@pytest.mark.parametrize("count", [fast.WORTH, 44_426])
def test_compiled_releases_have_the_same_bits(monkeypatch, count):
    """Totals to 2^33 grid steps, so that some saturate, and exact halves, which go to the even neighbour."""
    tables = noise.GaussianTables(68_812.8)
    total = np.random.default_rng(3).normal(scale=2.0**14, size=count)
    total[:1000] = (np.arange(1000) + 0.5) * 2.0**-16
    total[1000:1004] = 2.0**17, -(2.0**17), np.inf, -np.inf
    compiled = tables.released(RandomStream(KEY), total, 2.0**16)
    monkeypatch.setattr(fast, "kernels", lambda: None)
    plain = tables.released(RandomStream(KEY), total, 2.0**16)
    np.testing.assert_array_equal(compiled, plain)
    assert compiled.dtype == plain.dtype == np.int32
    assert {compiled.min(), compiled.max()} == {-(2**31 - 1), 2**31 - 1}


@needs_numba
def test_compiled_code_is_kept_out_where_somebody_says_so(monkeypatch, fresh):
    monkeypatch.setenv("HUSHGRAD_FAST", "0")
    assert fast.kernels() is None


def test_a_numba_that_cannot_be_imported_is_as_good_as_none(monkeypatch, fresh):
    monkeypatch.setattr(fast, "available", lambda: True)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert fast.kernels() is None


def test_small_rounds_do_not_load_numba():
    code = (
        "import sys\n"
        "from hushgrad.client import noise, stream\n"
        "noise.GaussianTables(2.0**16).draw(stream.RandomStream(), 8192)\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
