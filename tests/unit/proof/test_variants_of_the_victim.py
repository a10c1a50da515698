"""Variants change what they say, once, and nothing else."""

from __future__ import annotations

import ast

import pytest

from tests.changed_values import replace
from tests.proof.gates_against_peers import catalogue
from tests.proof.gates_against_peers.making import edited
from tests.proof.gates_against_peers.places import TEMPLATE
from tests.proof.gates_against_peers.variants import CASES, Expected, Kind, Replace

SOURCE = (TEMPLATE / "victim.py").read_text(encoding="utf-8")
SPINS_S = dict.fromkeys(CASES, 0.005)
FACTORIES = {node.name for node in ast.parse(SOURCE).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("variant", catalogue.ALL, ids=lambda variant: variant.name)
def test_every_variant_can_be_made_and_is_still_a_module(variant):
    source = edited(SOURCE, variant, SPINS_S)
    compile(source, variant.name, "exec")
    differs = variant.edits or variant.spins
    assert (source != SOURCE) is bool(differs)


@pytest.mark.parametrize("variant", catalogue.ALL, ids=lambda variant: variant.name)
def test_cases_and_controls_exist_and_are_not_the_same(variant):
    assert set(variant.cases) | set(variant.controls) <= FACTORIES
    assert not set(variant.cases) & set(variant.controls)


@pytest.mark.parametrize("variant", catalogue.ALL, ids=lambda variant: variant.name)
def test_something_is_expected_of_cases_and_of_nothing_else(variant):
    is_silent = variant.expected in (Expected.NOTHING, Expected.INCOMPARABLE)
    assert is_silent is not bool(variant.cases)


def test_names_are_unique():
    assert len(catalogue.BY_NAME) == len(catalogue.ALL)


def test_the_survey_of_reported_regressions_is_complete():
    numbers = {variant.name.partition("-")[0] for variant in catalogue.EXAMINED}
    assert numbers >= {"c01", "c02", "c03", "c04", "c10", "c11", "c12", "c13", "c15", "c16", "c17", "c18", "n1", "n2"}
    assert "C7" in catalogue.find("fault-denormals").doc


def test_the_victim_itself_does_not_spin():
    namespace = next(
        ast.literal_eval(node.value)
        for node in ast.parse(SOURCE).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SPIN_S"
    )
    assert namespace == dict.fromkeys(CASES, 0.0)


def test_a_spin_is_a_constant_that_was_calibrated_elsewhere():
    source = edited(SOURCE, catalogue.find("spin-03"), {**SPINS_S, "conv_step": 0.010})
    assert '"conv_step": 3.0000e-04' in source
    assert source.count("0.0,") == SOURCE.count("0.0,") - 1


def test_functions_that_change_places_keep_their_text():
    source = edited(SOURCE, catalogue.find("placebo-order"), SPINS_S)
    assert source.index("def lstm") < source.index("def attention") < source.index("def layer_norm")
    assert sorted(source) == sorted(SOURCE)


def test_a_text_that_does_not_stand_there_is_refused():
    variant = replace(catalogue.find("placebo-comment"), edits=(Replace(old="nowhere", new=""),))
    with pytest.raises(ValueError, match="stands 0 times"):
        edited(SOURCE, variant, SPINS_S)


def test_an_unknown_variant_is_named_with_those_that_exist():
    with pytest.raises(SystemExit, match="no variant 'spin-04'; choose from identical"):
        catalogue.find("spin-04")


def test_every_kind_has_a_variant():
    assert {variant.kind for variant in catalogue.ALL} == set(Kind)
