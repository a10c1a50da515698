"""Compiled operators are shared by all tests of a run: each takes some seconds of compiling."""

from __future__ import annotations

import pytest

from perfguard.kernels import build


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory):
    """A folder of compiled operators that all processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if base.name.startswith("popen-") else base) / "kernels"


@pytest.fixture(scope="module", autouse=True)
def _uses_the_cache(kernel_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(build.CACHE_VARIABLE, str(kernel_cache))
        yield
