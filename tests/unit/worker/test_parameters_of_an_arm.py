"""An arm's parameters reach the factories that have them."""

from __future__ import annotations

import json

import pytest

from perfguard.worker.cases import PARAMETERS_VARIABLE, parameters_of


def factory(*, hidden, ratio=0.5, causal=False, optimizer="for-loop"):
    """Stands for a benchmark's."""


CASE = {"parameters": {"hidden": 4}}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {"hidden": 4}),
        ({"hidden": "8"}, {"hidden": 8}),
        ({"optimizer": "fused", "ratio": "0.25"}, {"hidden": 4, "optimizer": "fused", "ratio": 0.25}),
        ({"optimizer": "a,b=c"}, {"hidden": 4, "optimizer": "a,b=c"}),
        ({"causal": "true"}, {"hidden": 4, "causal": True}),
        ({"norm": "folded"}, {"hidden": 4}),
    ],
)
def test_those_that_a_factory_has_replace_its_own_in_its_types(monkeypatch, chosen, expected):
    monkeypatch.setenv(PARAMETERS_VARIABLE, json.dumps(chosen))
    assert parameters_of(factory, CASE) == expected
