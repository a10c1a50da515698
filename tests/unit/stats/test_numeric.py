from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from perfguard.stats.numeric import MAD_TO_SD, chi2_quantile, root_between


@pytest.mark.parametrize("degrees", [1.0, 3.7, 40.0])
def test_quantiles_are_those_of_scipy(degrees):
    q = np.array([1e-6, 0.025, 0.5, 0.975])
    assert chi2_quantile(q, degrees) == pytest.approx(stats.chi2.ppf(q, degrees), rel=1e-12)


def test_half_of_a_normal_distribution_is_nearer_than_its_median_absolute_deviation():
    assert 1 / stats.norm.ppf(0.75) == pytest.approx(MAD_TO_SD, abs=1e-4)


@pytest.mark.parametrize(("function", "root"), [(lambda x: x**3 - 2, 2 ** (1 / 3)), (lambda x: 1 - x, 1.0)])
def test_a_root_is_found_to_the_last_digit_rising_or_falling(function, root):
    assert root_between(function, 0.0, 10.0) == pytest.approx(root, rel=1e-15)


def test_a_root_may_be_asked_for_with_fewer_digits():
    asked = []
    found = root_between(lambda x: asked.append(x) or math.cos(x), 0.0, 3.0, within=0.01)
    assert abs(found - math.pi / 2) < 0.01
    assert len(asked) <= 11


def test_a_gate_imports_neither_scipys_distributions_nor_its_optimizers():
    script = "import sys, perfguard.gate.paired.compare_arms; print({'scipy.stats', 'scipy.optimize'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
