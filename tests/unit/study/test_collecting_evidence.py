"""A study's folder: what is stored is not measured again, and does not mix machines."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from perfguard.errors import InterruptedRunError, MeasurementError, StoreError, UsageError
from perfguard.host.probe import probe
from perfguard.study.collect import EVIDENCE, StudyItem, StudyPlan, collect, items_of, stored_items
from perfguard.study.evidence import ModelDonut
from perfguard.study.items import PARTS
from perfguard.study.measured import Item, Measured
from perfguard.study.paper import load_paper
from tests.made_studies import DONUTS, classes, donut, estimate, kernel, toggle

HOST = probe()
RATIOS = {"loss": 3.0, "backbone": 1.1}


class Measuring:
    """Items that are measured by giving a made value, and a note of which were."""

    def __init__(self, values: dict[str, Item], torch: str = "2.13.0") -> None:
        self.values, self.torch = values, torch
        self.measured: list[str] = []
        self.budgets: list[float] = []
        self.fails: dict[str, Exception] = {}

    def items(self) -> tuple[StudyItem, ...]:
        return tuple(
            StudyItem(
                part=item.part, name=item.name, patterns=item.patterns, measure=self._one(item.id),
                is_timed=item.is_timed,
            )
            for item in items_of(PARTS)
            if item.id in self.values
        )  # fmt: skip

    def _one(self, item: str) -> Callable[..., Measured]:
        def measure(_: object) -> Measured:
            self.measured.append(item)
            if item in self.fails:
                raise self.fails[item]
            return Measured(value=self.values[item], torch=self.torch, cpus=(1,))

        return measure

    def collect(self, folder: Path, *, budget_s: float = 100.0):
        def request_of(_: object, item_budget_s: float):
            self.budgets.append(item_budget_s)

        plan = StudyPlan(folder=folder, items=self.items(), host=HOST, budget_s=budget_s, request_of=request_of)
        return collect(plan)


DONUTS_ONLY = {f"donuts-{made.model}": made for made in DONUTS}
EVERYTHING = {
    **DONUTS_ONLY,
    "phases-classes": classes(RATIOS),
    "kernels-explicit": kernel("explicit", forward=0.3, backward=0.5),
    "cases-dtype": toggle("dtype", 1.9),
    "cases-layout": toggle("layout", 1.1),
}


def test_items_have_files_of_their_own_that_read_back_as_they_were(tmp_path: Path) -> None:
    evidence = Measuring(EVERYTHING).collect(tmp_path)
    assert {path.stem for path in (tmp_path / EVIDENCE).iterdir()} == set(EVERYTHING)
    assert {name: item.value for name, item in stored_items(tmp_path).items()} == EVERYTHING
    assert (evidence.donuts, evidence.classes) == (DONUTS, classes(RATIOS))
    assert [toggle.name for toggle in evidence.toggles] == ["dtype", "layout"]


def test_unknown_ends_of_an_interval_read_back_as_unknown(tmp_path: Path) -> None:
    lone = estimate(2.0, spread=math.inf)
    Measuring({"cases-dtype": toggle("dtype", 2.0, spread=math.inf)}).collect(tmp_path)
    (stored,) = stored_items(tmp_path).values()
    assert math.isinf(lone.interval.upper)
    assert math.isnan(stored.value.effect.interval.upper)


def test_a_study_that_was_ended_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Measuring(DONUTS_ONLY)
    first.fails["donuts-transformer"] = InterruptedRunError("interrupted")
    with pytest.raises(InterruptedRunError):
        first.collect(tmp_path)
    second = Measuring(DONUTS_ONLY)
    assert second.collect(tmp_path).donuts == DONUTS
    assert second.measured == ["donuts-transformer", "donuts-retinanet"]


def test_an_item_that_cannot_be_measured_does_not_stop_the_others(tmp_path: Path) -> None:
    measuring = Measuring(DONUTS_ONLY)
    measuring.fails["donuts-lstm"] = MeasurementError("no memory")
    evidence = measuring.collect(tmp_path)
    assert len(evidence.donuts) == 3
    problem = evidence.problems["donuts-lstm"]
    assert (problem.code, problem.values["error"]) == ("study.item_failed", "no memory")


def test_items_beyond_the_budget_are_named_and_left_for_the_next_time(tmp_path: Path) -> None:
    Measuring({"donuts-lstm": DONUTS[1]}).collect(tmp_path)
    evidence = Measuring(DONUTS_ONLY).collect(tmp_path, budget_s=0.0)
    assert [donut.model for donut in evidence.donuts] == ["lstm"]
    assert {problem.code for problem in evidence.problems.values()} == {"study.budget_ended"}


def test_comparisons_share_what_is_left_of_the_budget(tmp_path: Path) -> None:
    measuring = Measuring({"cases-dtype": toggle("dtype", 1.9), "cases-layout": toggle("layout", 1.1)})
    measuring.collect(tmp_path, budget_s=1000.0)
    assert measuring.budgets == pytest.approx([500.0, 1000.0], rel=0.05)


def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError):
        Measuring(DONUTS_ONLY).collect(tmp_path, budget_s=0.0)


def test_evidence_of_another_torch_is_refused_and_kept(tmp_path: Path) -> None:
    Measuring({"donuts-lstm": DONUTS[1]}).collect(tmp_path)
    with pytest.raises(UsageError):
        Measuring(DONUTS_ONLY, torch="2.12.0").collect(tmp_path)
    assert list(stored_items(tmp_path)) == ["donuts-lstm"]


def test_evidence_of_another_machine_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    Measuring({"donuts-lstm": DONUTS[1]}).collect(tmp_path)
    path = tmp_path / EVIDENCE / "donuts-lstm.json"
    path.write_text(path.read_text(encoding="utf-8").replace(HOST.machine_id, "another-machine"), encoding="utf-8")
    measuring = Measuring(DONUTS_ONLY)
    with pytest.raises(UsageError):
        measuring.collect(tmp_path)
    assert measuring.measured == []


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "part": "donuts"}', '{"schema": 1, "part": "donuts"}'])
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / EVIDENCE).mkdir()
    (tmp_path / EVIDENCE / "donuts-lstm.json").write_text(text, encoding="utf-8")
    with pytest.raises(StoreError):
        stored_items(tmp_path)


def test_every_part_has_items_and_every_donut_of_the_paper_one() -> None:
    assert {item.part for item in items_of(PARTS)} == {*PARTS}
    assert {item.name for item in items_of(["donuts"])} == {donut.model for donut in load_paper().donuts}
    assert len({item.id for item in items_of(PARTS)}) == len(items_of(PARTS))


def test_a_made_donut_has_shares_that_add_up() -> None:
    made = donut("lstm", {("rnn", "FWD_D"): 1.0}, norm_share=0.1)
    assert isinstance(made, ModelDonut)
    assert sum(s.share for s in made.breakdown.slices) == pytest.approx(1.0)
