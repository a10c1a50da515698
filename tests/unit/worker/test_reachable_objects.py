from __future__ import annotations

import functools
import sys
from types import FunctionType, ModuleType

import pytest

from perfguard.worker.program import MAX_ENTRIES, everywhere, is_kind, reachable


class Part:
    """What is looked for."""

    def __init__(self, name):
        self.name = name


class Holder:
    def __init__(self, **parts):
        self.__dict__.update(parts)

    def step(self):
        return self


def names(*roots):
    return [part.name for part in reachable(roots, (Part,))]


def test_a_closure_leads_to_what_it_uses():
    part, other = Part("used"), Part("not used")

    def step():
        return part

    assert names(step) == ["used"]
    assert other.name == "not used"


def test_what_is_near_comes_first():
    far = Holder(inner=Holder(part=Part("far")))
    near = Part("near")

    def step():
        return far, near

    assert names(step) == ["near", "far"]


@pytest.mark.parametrize("wrap", [lambda f: functools.partial(f, 1), lambda f: Holder(f=f).__dict__["f"]])
def test_partial_functions_lead_on(wrap):
    part = Part("held")
    assert names(wrap(lambda *_: part)) == ["held"]


def test_methods_defaults_and_attributes_of_functions_lead_on():
    default, keyword, part = Part("default"), Part("keyword"), Part("attribute")

    def step(first=default, *, second=keyword):
        return first, second

    step.check = lambda: part
    assert set(names(step)) == {"default", "keyword", "attribute"}
    assert names(Holder(part=Part("own")).step) == ["own"]


MODULE_PART = Part("global")
UNUSED_PART = Part("unused global")


def mentions_a_global():
    return MODULE_PART


def test_of_the_globals_those_that_a_function_mentions_are_followed():
    assert names(mentions_a_global) == ["global"]
    assert names(lambda: [mentions_a_global()]) == ["global"]
    assert UNUSED_PART.name


def test_libraries_are_not_wandered_through():
    library = ModuleType("torch.fake")
    library.part = Part("of a library")
    function = FunctionType(compile("lambda: part", "fake", "eval").co_consts[0], vars(library))
    function.__module__ = "torch.fake"
    assert names(function, library, Part, sys) == []


def test_what_is_met_twice_is_found_once():
    part = Part("one")
    assert names([part, (part, {"again": part})]) == ["one"]


def test_circles_end():
    holder = Holder()
    holder.me = [holder, Part("in a circle")]
    assert names(holder) == ["in a circle"]


def test_data_is_not_looked_into():
    assert names([Part(str(number)) for number in range(MAX_ENTRIES + 1)]) == []
    assert len(names([Part(str(number)) for number in range(MAX_ENTRIES)])) == MAX_ENTRIES


class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("asked for its class")


def test_an_object_that_hides_its_class_is_not_asked_for_it():
    assert not is_kind(Proxy(), (Part,))
    assert names([Proxy(), Part("beside")]) == ["beside"]


def test_everything_alive_can_be_looked_through():
    part = Part("alive")
    assert part in everywhere((Part,))
