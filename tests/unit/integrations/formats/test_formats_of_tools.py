"""All formats together: none is taken for another, and whatever a file holds, there is a suite or one sentence."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.cli.commands.interchange import EXPORTED, IMPORTED
from perfguard.errors import PerfguardError, StoreError
from perfguard.integrations.formats.exporting import WRITERS
from perfguard.integrations.formats.importing import (
    AUTO,
    MIN_PROCESSES,
    READERS,
    gate_objection,
    import_suite,
    objections_of,
)
from perfguard.integrations.formats.reading import MAX_NAME
from perfguard.integrations.formats.suites import Objection
from perfguard.stats.rounds import MIN_ROUNDS
from tests.interchange_files import EXAMPLES, measured, read, suite_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
HOSTILE = (
    None, True, 0, -1, 10**40, float("nan"), float("inf"), -1e300, 5e-324, "", "\x1b[31m\n", "\ud800", "x" * 5000, [],
    {}, [[]], [None], {"a": {"b": {}}},
)  # fmt: skip


def paths(document, place=()):
    """Every place inside a document."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield (*place, key)
        yield from paths(value, (*place, key))


def with_value(document, place, value):
    changed = copy.deepcopy(document)
    target = changed
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    return changed


PLACES = {name: tuple(paths(document)) for name, document in EXAMPLES.items()}


def test_commands_offer_what_there_is():
    assert (*READERS,) == tuple(name for name in IMPORTED if name != AUTO)
    assert set(WRITERS) == set(EXPORTED)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_is_recognised_as_one_format_only(name):
    assert [other for other, reader in READERS.items() if reader.recognises(EXAMPLES[name])] == [name]
    assert read(EXAMPLES[name]) == read(EXAMPLES[name], name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_host_names_are_not_taken_over(name):
    assert "secret" not in repr(read(EXAMPLES[name]))


@given(JSON)
def test_any_document_gives_a_suite_or_a_sentence(document):
    for name in (AUTO, *READERS):
        try:
            read(document, name)
        except StoreError as error:
            assert str(error).startswith("x.json")


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=300)
@given(data=st.data())
def test_a_file_with_anything_in_any_place_gives_a_suite_or_a_sentence(name, data):
    place = data.draw(st.sampled_from(PLACES[name]))
    value = data.draw(st.sampled_from(HOSTILE) | JSON)
    try:
        suite = read(with_value(EXAMPLES[name], place, value), name)
    except StoreError as error:
        assert "\n" not in str(error)
        return
    assert all(series.name.isprintable() and 0 < len(series.name) <= MAX_NAME for series in suite.series)
    objections_of(suite)


@pytest.mark.parametrize("name", EXAMPLES)
@given(st.data())
def test_a_file_without_any_one_part_gives_a_suite_or_a_sentence(name, data):
    place = data.draw(st.sampled_from([place for place in PLACES[name] if isinstance(place[-1], str)]))
    document = copy.deepcopy(EXAMPLES[name])
    target = document
    for key in place[:-1]:
        target = target[key]
    del target[place[-1]]
    try:
        read(document, name)
    except StoreError as error:
        assert str(error).startswith("x.json")


@pytest.mark.parametrize("name", EXAMPLES)
@given(st.integers(min_value=0))
def test_a_file_cut_off_anywhere_is_refused(name, length):
    content = json.dumps(EXAMPLES[name]).encode()
    with pytest.raises(StoreError):
        import_suite(content[: length % len(content)], source="x.json")


def test_a_series_named_twice_is_refused():
    document = copy.deepcopy(EXAMPLES["pytest-benchmark"])
    document["benchmarks"].append(document["benchmarks"][0])
    with pytest.raises(StoreError, match="twice"):
        read(document)


def test_what_has_no_known_shape_names_all_that_have():
    with pytest.raises(StoreError, match="none of pyperf, asv, pytest-benchmark, google-benchmark, pytorch, bencher"):
        read({"schema": 1, "verdict": "pass"})


@pytest.mark.parametrize(
    ("series", "objection"),
    [
        (measured("x", (1.0,), (1.1,), control_s=0.002), None),
        (measured("x", (1.0,), (1.1,)), "import.no_control"),
        (measured("x", (1.0, 1.1), control_s=0.002), "import.too_few_processes"),
        (measured("x", (1.0,), (1.1,), has_processes=False), "import.unknown_processes"),
        (measured("x", (1.0,), (1.1,), samples=None), "import.only_a_summary"),
        (measured("x", (1.0,), (1.1,), unit="B"), "import.not_a_time"),
    ],
    ids=["whole", "no canary", "import.too_few_processes", "processes unknown", "a summary", "bytes"],
)
def test_a_gate_objects_to_the_first_thing_that_is_missing(series, objection):
    found = gate_objection(series)
    assert (None if found is None else found.code) == objection
    assert objections_of(suite_of(series)) == (() if found is None else (Objection(fact=found, series=("x",)),))


def test_series_with_the_same_objection_are_named_together():
    timed = measured("b", (1.0,), (1.1,), control_s=0.002)
    suite = suite_of(measured("a", (1.0,)), timed, measured("c", (1.0,)), measured("d", (1.0,), unit="B"))
    found = [(objection.fact.code, objection.series) for objection in objections_of(suite)]
    assert found == [("import.too_few_processes", ("a", "c")), ("import.not_a_time", ("d",))]


def test_as_many_processes_are_asked_for_as_rounds_of_a_stored_baseline():
    assert MIN_PROCESSES == MIN_ROUNDS


def test_every_error_of_an_import_has_an_exit_code():
    with pytest.raises(PerfguardError) as caught:
        read([])
    assert int(caught.value.exit_code) == 3
