"""Two imported files: compared as rounds are where they hold what that needs, refused with the reason where not."""

from __future__ import annotations

import json
import random

import pytest

from perfguard.config import load_config
from perfguard.errors import StoreError, UsageError
from perfguard.integrations.formats import pyperf_json
from perfguard.integrations.formats.importing import compare_suites, import_files
from perfguard.integrations.formats.suites import Difference
from perfguard.records.facts import fact
from perfguard.records.verdict import Policy
from tests.interchange_files import BENCHER, PYTEST, measured, suite_of

POLICY = Policy()


def processes(median_s: float, *, seed: int, count: int = 6, sd: float = 0.001) -> list[tuple[float, ...]]:
    draw = random.Random(seed)
    return [tuple(median_s * draw.gauss(1.0, sd) for _ in range(5)) for _ in range(count)]


def pair(effect: float, *, control_s: float | None = None, moved: float = 0.0, names: tuple[str, ...] = ("x",)):
    """Two suites of the same series; `moved` is how much slower the second machine ran, control workload and all."""
    old = [measured(name, *processes(0.01, seed=i), control_s=control_s) for i, name in enumerate(names)]
    new = [
        measured(
            name,
            *processes(0.01 * (1 + effect) * (1 + moved), seed=100 + i),
            control_s=control_s and control_s * (1 + moved),
        )
        for i, name in enumerate(names)
    ]
    return suite_of(*old), suite_of(*new, source="b.json")


@pytest.mark.parametrize(
    ("effect", "difference"), [(0.05, Difference.SLOWER), (-0.05, Difference.FASTER), (0.0, Difference.EQUAL)]
)
def test_a_difference_is_found_with_its_interval(effect, difference):
    (found,) = compare_suites(*pair(effect), POLICY)
    assert found.difference is difference
    assert found.lower < found.log_ratio < found.upper
    assert found.log_ratio == pytest.approx(effect, abs=0.003)
    assert found.reasons
    assert not found.has_control


def test_a_machine_that_became_slower_is_no_slower_code_where_the_control_workload_tells():
    without = compare_suites(*pair(0.0, moved=0.05), POLICY)[0]
    with_control = compare_suites(*pair(0.0, control_s=0.002, moved=0.05), POLICY)[0]
    assert (without.difference, without.has_control) == (Difference.SLOWER, False)
    assert with_control.difference is Difference.UNDECIDED
    assert with_control.has_control


def test_a_control_workload_on_one_side_only_is_not_used():
    old, _ = pair(0.0, control_s=0.002)
    _, new = pair(0.05)
    (found,) = compare_suites(old, new, POLICY)
    assert not found.has_control
    assert found.log_ratio == pytest.approx(0.05, abs=0.003)


def test_p_values_are_corrected_for_all_series():
    old, new = pair(0.05, names=("x", "y", "z"))
    alone = [
        compare_suites(suite_of(a), suite_of(b), POLICY)[0].p_adjusted
        for a, b in zip(old.series, new.series, strict=True)
    ]
    together = [found.p_adjusted for found in compare_suites(old, new, POLICY)]
    assert min(together) == pytest.approx(3 * min(alone))
    assert all(after >= before for before, after in zip(alone, together, strict=True))


def test_what_cannot_be_compared_stands_beside_what_can():
    old, new = pair(0.05)
    one = measured("y", (1.0, 1.1))
    compared, other = compare_suites(suite_of(*old.series, one), suite_of(*new.series, one, source="b.json"), POLICY)
    assert compared.difference is Difference.SLOWER
    assert (other.name, other.difference, other.log_ratio) == ("y", Difference.NOT_COMPARED, None)
    assert other.reasons == (fact("import.too_few_processes", place="a.json", needed_processes=2),)


@pytest.mark.parametrize(
    ("fields", "said"), [({"samples": None}, "no raw samples"), ({"has_processes": False}, "which process")]
)
def test_files_without_what_a_comparison_needs_are_refused_with_the_reason(fields, said):
    old = suite_of(measured("x", (1.0,), (1.1,)))
    new = suite_of(measured("x", (1.0,), (1.1,), **fields), source="b.json")
    with pytest.raises(UsageError, match=rf"cannot be compared: x: b\.json: .*{said}"):
        compare_suites(old, new, POLICY)


def test_files_with_nothing_in_common_are_refused_and_told_apart():
    with pytest.raises(UsageError, match=r"no time in common: the first has x, the second y, z and 1 more"):
        compare_suites(
            suite_of(measured("x", (1.0,))),
            suite_of(measured("y", (1.0,)), measured("z", (1.0,)), measured("w", (1.0,))),
            POLICY,
        )


@pytest.fixture
def files(tmp_path):
    def written(*suites):
        paths = []
        for number, suite in enumerate(suites):
            path = tmp_path / f"{number}.json"
            path.write_bytes(pyperf_json.write(suite) if not isinstance(suite, (dict, list)) else b"")
            if isinstance(suite, (dict, list)):
                path.write_text(json.dumps(suite))
            paths.append(str(path))
        return paths

    return written


def test_one_file_is_shown_with_what_a_gate_objects_to(files, tmp_path):
    report = import_files(load_config(tmp_path, {}, {}), files(PYTEST))
    assert report.comparisons == ()
    (objections,) = report.objections
    assert len(objections) == 2


def test_what_a_comparison_takes_for_granted_is_noted(files, tmp_path):
    loaded = load_config(tmp_path, {}, {})
    assert _codes(import_files(loaded, files(*pair(0.05)))) == ["import.speed_assumed", "import.not_a_gate"]
    assert _codes(import_files(loaded, files(*pair(0.05, control_s=0.002)))) == ["import.not_a_gate"]


def _codes(report):
    return [note.code for note in report.notes]


def test_another_machine_is_noted(files, tmp_path):
    old, new = pair(0.05, control_s=0.002)
    named = [suite_of(*suite.series, machine_id=machine) for suite, machine in ((old, "one"), (new, "two"))]
    notes = import_files(load_config(tmp_path, {}, {}), files(*named)).notes
    assert notes[0] == fact("import.other_machine", baseline="one", candidate="two")


def test_a_gate_refuses_a_summary(files, tmp_path):
    with pytest.raises(UsageError, match="only a summary"):
        import_files(load_config(tmp_path, {}, {}), files(BENCHER, BENCHER))


@pytest.mark.parametrize("name", ["absent.json", ".", "a\0b"])
def test_a_file_that_cannot_be_opened_gives_a_sentence(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="cannot be read"):
        import_files(load_config(tmp_path, {}, {}), [name])
