"""The study of Hogbatch on made-up runs: fair search, race, claims, and a report that holds what was measured."""

from __future__ import annotations

import itertools
import math

import pytest

from perfguard.errors import InterruptedRunError, MeasurementError, StoreError, UsageError
from perfguard.hetero.planning import places, plan_of
from perfguard.hetero.shapes import SHAPES
from perfguard.records.training import (
    Counters,
    Device,
    Ending,
    GroupPace,
    TrainedOn,
    Training,
    TrainingEpoch,
    TrainingOutcome,
    TrainingPlanned,
    Utilisation,
)
from perfguard.report.study.hogbatch import hogbatch_summary, render_hogbatch_page, write_hogbatch
from perfguard.study.hogbatch.claims import Ratio, claims_of, race, ratio_of
from perfguard.study.hogbatch.collect import EVIDENCE, SEARCH_SEED, HogbatchPlan, candidates, collect, config_of
from perfguard.study.hogbatch.evidence import ALGORITHMS, LossPoint, crossing
from perfguard.study.shapes.shape import ShapeOutcome
from tests.changed_values import replace

SPEED = {"pytorch": 1.0, "cpu": 1.8, "large": 0.5, "hogbatch": 2.0, "adaptive": 2.2}
"""How fast each algorithm's loss falls here: exp(-speed * seconds * rate)."""


class Machine:
    """Trains in no time: losses by a formula of algorithm, rate, and seed."""

    def __init__(self, best_rate=0.3):
        self.configs, self.best_rate = [], best_rate  # Higher rates help no more

    def train(self, config):
        self.configs.append(config)
        found = places(config, (0, 1))
        speed = SPEED[config.algorithm] * min(config.learning_rate, self.best_rate) * (1 + 0.01 * (config.seed % 7))
        end_s = config.time_s
        if config.target_loss is not None:
            end_s = min(end_s, -math.log(config.target_loss) / speed)
        is_reached = config.target_loss is not None and end_s < config.time_s
        epochs = tuple(
            TrainingEpoch(
                epoch=number,
                at_s=at_s,
                trained_s=at_s,
                loss_s=0.0,
                loss=math.exp(-speed * at_s),
                updates={place.group: number * (9 if place.group == "cpu" else 1) for place in found},
                batches={place.group: 64 for place in found},
            )
            for number, at_s in enumerate([end_s * part / 4 for part in range(5)])
        )
        outcome = TrainingOutcome(
            ending=Ending.TARGET if is_reached else Ending.TIME,
            at_s=end_s,
            counters={place.name: Counters(updates=4, trained=100, busy_s=end_s / 2) for place in found},
            utilisation=Utilisation(bin_s=1.0, groups={place.group: (0.5, 0.6) for place in found}),
            paces={
                place.group: GroupPace(update_s=0.0, example_s=1e-4, loss_example_s=1e-5, transfer_s=0.0, latency_s=0.0)
                for place in found
            },
            schedule=tuple((0.0, group, 64) for group in {place.group for place in found}),
        )
        trained = TrainedOn(
            examples=20_000, features=5, classes=2, parameters=10, is_sparse=False, is_multilabel=False,
            devices={place.group: "CPU" for place in found}, torch="2.13.0",
        )  # fmt: skip
        planned = TrainingPlanned(config=config, workers=found)
        return Training(
            run_id="r", machine_id="m", machine="a machine", planned=planned, trained=trained, epochs=epochs,
            outcome=outcome,
        )  # fmt: skip


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def plan(tmp_path, machine):
    return HogbatchPlan(
        folder=tmp_path, shapes=("covtype",), seeds=3, search_s=4.0, budget_s=1e9, cpus=2, train=machine.train
    )


def test_the_search_is_the_same_for_all_but_for_threads_of_pytorch(plan, machine):
    collect(plan)
    tried = [config for config in machine.configs if config.seed == SEARCH_SEED]
    assert {config.time_s for config in tried} == {4.0}
    rates = {name: {c.learning_rate for c in tried if c.algorithm == name} for name in ALGORITHMS}
    assert len({frozenset(each) for each in rates.values()}) == 1
    assert len(candidates("pytorch", 2)) == len(candidates("large", 2)) == 2 * len(candidates("cpu", 2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_setting_fits_the_data_of_every_shape(shape, algorithm):
    for setting in candidates(algorithm, 2):
        config = config_of(shape, algorithm, setting, seed=0)
        assert plan_of(config, places(config, (0, 1)), SHAPES[shape].reduced, dict.fromkeys(config.groups, Device.CPU))


@pytest.mark.parametrize(("best_rate", "highest"), [(0.1, 0.3), (0.3, 1.0), (3.0, 10.0), (100.0, 30.0)])
def test_higher_learning_rates_are_tried_while_they_help(plan, best_rate, highest):
    machine = Machine(best_rate)
    collect(replace(plan, train=machine.train))
    tried = [config for config in machine.configs if config.seed == SEARCH_SEED]
    assert {max(c.learning_rate for c in tried if c.algorithm == name) for name in ALGORITHMS} == {highest}
    raced = {config.learning_rate for config in machine.configs if config.seed != SEARCH_SEED}
    assert raced == {min(best_rate, 30.0)}


def test_every_algorithm_races_to_the_loss_of_pytorchs_best_with_its_own_best(plan, machine):
    evidence = collect(plan)
    target = evidence.targets["covtype"]
    assert target == pytest.approx(math.exp(-0.3 * 4.0 * (1 + 0.01 * (SEARCH_SEED % 7))))
    raced = [config for config in machine.configs if config.seed != SEARCH_SEED]
    assert {(config.seed, config.algorithm) for config in raced} == {(s, a) for s in range(3) for a in ALGORITHMS}
    assert {config.learning_rate for config in raced} == {0.3}
    assert {config.target_loss for config in raced} == {target}
    firsts = [next(c.algorithm for c in raced if c.seed == seed) for seed in range(3)]
    assert len(set(firsts)) == 3  # the order turns


def test_what_is_stored_is_not_measured_again(plan, machine):
    first = collect(plan)
    count = len(machine.configs)
    assert collect(plan) == first
    assert len(machine.configs) == count


def test_the_budget_ends_a_study_and_the_next_call_goes_on(plan, machine):
    with pytest.raises(MeasurementError, match="nothing was measured"):
        collect(replace(plan, budget_s=0.0))
    assert collect(plan).problems == {}


def test_a_run_that_fails_is_named_and_stops_its_shape_alone(plan, machine):
    def train(config):
        if config.algorithm == "large":
            raise UsageError("no such device")
        return machine.train(config)

    evidence = collect(replace(plan, train=train))
    assert [each.values["error"] for each in evidence.problems_of("covtype")] == ["no such device"]
    assert {claim.outcome for claim in claims_of(evidence)} == {ShapeOutcome.NOT_MEASURED}
    write_hogbatch(plan.folder, evidence)
    assert "no such device" in (plan.folder / "report.md").read_text(encoding="utf-8")


def test_a_run_without_an_epoch_of_training_chooses_no_setting(plan, machine):
    def train(config):
        trained = machine.train(config)
        return replace(trained, epochs=trained.epochs[:1])

    with pytest.raises(MeasurementError, match="more --search-s"):
        collect(replace(plan, train=train))


@pytest.mark.parametrize(
    ("epochs", "outcome"),
    [
        ((1, 2, 3, 4), ShapeOutcome.HOLDS),
        ((2, 1, 3, 4), ShapeOutcome.FAILS),
        ((1, None, 3, None), ShapeOutcome.OPEN),
        ((3, None, 1, None), ShapeOutcome.FAILS),
    ],
)
def test_the_order_of_epochs_is_judged_by_the_algorithms_that_reached_the_loss(plan, epochs, outcome):
    """Of hogwild, adaptive, hogbatch and large batches; None did not reach it in its time."""
    evidence = collect(plan)
    ends = dict(zip(("cpu", "adaptive", "hogbatch", "large"), epochs, strict=True))
    target = evidence.targets["covtype"]

    def cut(run):
        if run.is_search or run.algorithm == "pytorch":
            return run
        end = ends[run.algorithm]
        losses = [(0, 1.0), (9, 1.0)] if end is None else [(0, 1.0), (end, target)]
        points = tuple(LossPoint(epoch=epoch, trained_s=float(epoch), loss=loss) for epoch, loss in losses)
        return replace(run, points=points)

    claims = {each.claim.code: each for each in claims_of(replace(evidence, runs=tuple(map(cut, evidence.runs))))}
    assert claims["hogbatch.epochs"].outcome is outcome


def test_an_interrupted_study_keeps_what_it_has(plan, machine):
    def train(config):
        if len(machine.configs) == 5:
            raise InterruptedRunError("interrupted")
        return machine.train(config)

    with pytest.raises(InterruptedRunError):
        collect(replace(plan, train=train))
    assert len(list((plan.folder / EVIDENCE).glob("*.json"))) == 5


def test_runs_of_another_machine_are_refused(plan, machine):
    collect(plan)

    def train(config):
        return replace(machine.train(config), machine_id="other")

    with pytest.raises(UsageError, match="choose another folder"):
        collect(replace(plan, seeds=4, train=train))


def test_a_damaged_file_is_named(plan):
    collect(plan)
    path = next((plan.folder / EVIDENCE).glob("*.json"))
    path.write_text("{}")
    with pytest.raises(StoreError, match="delete it, and the study measures it again"):
        collect(plan)


def test_claims_follow_from_the_runs(plan):
    claims = {(each.claim.code, *_who(each.claim)): each for each in claims_of(collect(plan))}
    fastest = claims["hogbatch.against_pytorch", "adaptive"]
    assert fastest.claim.values["factor"] == pytest.approx(1 / 2.2, rel=0.02)
    assert fastest.outcome is ShapeOutcome.HOLDS
    assert claims["hogbatch.sooner", "hogbatch", "cpu"].outcome is ShapeOutcome.HOLDS
    # The slow one never gets there in five times the search's seconds.
    assert claims["hogbatch.sooner", "hogbatch", "large"].outcome is not ShapeOutcome.FAILS
    assert claims["hogbatch.balance",].outcome is ShapeOutcome.FAILS  # the same shares in both, here
    assert claims["hogbatch.utilisation",].outcome is ShapeOutcome.NOT_MEASURED  # these workers were busy with nothing


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ((0.94, 0.95, 0.96), ShapeOutcome.HOLDS),
        ((1.04, 1.05, 1.06), ShapeOutcome.FAILS),
        ((0.97, 1.01, 1.05), ShapeOutcome.OPEN),
    ],
)
def test_whether_adaptive_uses_the_workers_no_better_is_judged_by_an_interval_over_seeds(plan, parts, outcome):
    evidence = collect(plan)
    seeds = sorted({run.seed for run in evidence.raced("covtype", "adaptive")})
    part_of = dict(zip(seeds, itertools.cycle(parts), strict=False))
    runs = [
        replace(run, busy={"cpu": 0.9 * (part_of.get(run.seed, 1.0) if run.algorithm == "adaptive" else 1.0)})
        for run in evidence.runs
    ]
    claims = {each.claim.code: each for each in claims_of(replace(evidence, runs=tuple(runs)))}
    assert claims["hogbatch.utilisation"].outcome is outcome


def _who(claim):
    return [claim.values[name] for name in ("algorithm", "alone") if name in claim.values]


def test_a_report_names_every_algorithm_and_shape(plan):
    evidence = collect(plan)
    written = write_hogbatch(plan.folder, evidence)
    assert [path.name for path in written] == ["report.html", "report.md", "report.json"]
    page = render_hogbatch_page(evidence, claims_of(evidence))
    assert page == (plan.folder / "report.html").read_text(encoding="utf-8")
    text = (plan.folder / "report.md").read_text(encoding="utf-8")
    assert "Adaptive Hogbatch" in page
    assert "Adaptive Hogbatch" in text
    assert "covtype" in hogbatch_summary(evidence)


def test_a_ratio_is_a_geometric_mean_with_its_interval():
    found = ratio_of([(1.0, 2.0), (1.0, 2.0), (1.0, 2.0)])
    assert found == Ratio(factor=pytest.approx(0.5), lower=pytest.approx(0.5), upper=pytest.approx(0.5), seeds=3)
    wide = ratio_of([(1.0, 1.0), (1.0, 4.0)])
    assert wide.factor == pytest.approx(0.5)
    assert wide.lower < 0.01
    assert wide.upper > 10
    assert ratio_of([(1.0, 2.0)]) is None


def test_a_seed_that_missed_the_loss_leaves_no_ratio(plan):
    evidence = collect(plan)
    assert race(evidence, "covtype", "cpu", "pytorch", 1e-30).ratio is None
    found = race(evidence, "covtype", "cpu", "pytorch", 0.9)
    assert found.ratio.factor == pytest.approx(1 / 1.8, rel=0.02)
    assert (found.reached, found.others_reached, found.seeds) == (3, 3, 3)


def test_a_race_that_one_side_never_ends_is_decided(plan):
    evidence = collect(plan)
    target = evidence.targets["covtype"]
    end_s = {run.id: run.points[-1].trained_s for run in evidence.runs}

    def slower(run):
        """The same run, stopped before the target."""
        return replace(run, points=run.points[:3]) if run.algorithm == "cpu" and not run.is_search else run

    cut = replace(evidence, runs=tuple(map(slower, evidence.runs)))
    assert min(end_s.values()) > 0
    lost, won = race(cut, "covtype", "cpu", "pytorch", target), race(cut, "covtype", "pytorch", "cpu", target)
    assert (lost.reached, lost.others_reached, lost.below(1.0)) == (0, 3, ShapeOutcome.FAILS)
    assert (won.below(1.0), won.below(0.65)) == (ShapeOutcome.HOLDS, ShapeOutcome.OPEN)


def test_another_question_is_measured_anew_and_another_shape_keeps_its_runs(plan, machine):
    collect(plan)
    before = len(machine.configs)
    both = collect(replace(plan, shapes=("w8a",)))
    assert both.shapes == ("covtype", "w8a")
    assert set(both.targets) == {"covtype", "w8a"}
    assert {config.data.source for config in machine.configs[before:]} == {"w8a"}
    before = len(machine.configs)
    longer = collect(replace(plan, search_s=5.0))
    assert len(machine.configs) > before
    assert longer.shapes == ("covtype",)  # w8a answers the other question


def test_a_loss_is_reached_between_two_epochs():
    assert crossing([(0.0, 2.0), (1.0, 1.0), (2.0, 0.5)], 0.75) == pytest.approx(1.5)
    assert crossing([(0.0, 2.0), (1.0, 1.0)], 0.5) is None
    assert crossing([], 0.5) is None


def test_a_fact_of_each_claim_can_be_read(plan):
    from perfguard.report.messages.catalog import describe

    for claim in claims_of(collect(plan)):
        assert describe(claim.claim)
