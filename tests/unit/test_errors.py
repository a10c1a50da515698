from __future__ import annotations

import pytest

from perfguard import errors
from perfguard.errors import ExitCode, PerfguardError

CODES = {
    "PerfguardError": 3,
    "UsageError": 2,
    "ConfigError": 2,
    "ArmError": 2,
    "NothingSelectedError": 5,
    "NoRulesYetError": 5,
    "FingerprintError": 3,
    "HostUnfitError": 3,
    "MeasurementError": 3,
    "BelowTargetError": 3,
    "StoreError": 3,
    "DatabaseError": 3,
    "DatabaseVersionError": 3,
    "RefusedDataError": 3,
    "InterruptedRunError": 130,
}


def test_every_error_is_one_of_ours_with_a_code_that_is_documented():
    found = {
        name: int(kind.exit_code)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, PerfguardError)
    }
    assert found == CODES


@pytest.mark.parametrize("name", CODES)
def test_the_tree_in_the_documentation_shows_it(name):
    line = next(line for line in errors.__doc__.splitlines() if f" {name} " in f" {line} ")
    assert str(CODES[name]) in line.split()


def test_a_regression_has_a_code_of_its_own():
    """Nothing that goes wrong in perfguard itself may look like a regression."""
    assert ExitCode.REGRESSION not in CODES.values()
    assert len(set(ExitCode)) == 7
