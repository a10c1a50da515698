"""Rules are fed the same samples and answer as their tools do."""

from __future__ import annotations

import random
import subprocess
import sys

import pyperf
import pytest

from perfguard.records.run import BlockConditions
from perfguard.stats.confirming import CONFIRMATION_ANALYSES
from tests.changed_values import replace
from tests.proof.gates_against_peers import replay, replay_summary, rules
from tests.proof.gates_against_peers.perfguard_rule import cost_s, decide
from tests.proof.gates_against_peers.stream import Block, Design, Sample, Slices, injected, resampled, sample, separate
from tests.proof.gates_against_peers.tools.pyperf_tool import slower_of

CASES = ("quick", "slow")


def stream(blocks, *, seed=1, sd=0.004):
    draw = random.Random(seed)

    def arm(base_s):
        process = 1 + draw.gauss(0, sd)
        return tuple(base_s * process * (1 + draw.gauss(0, sd)) for _ in range(6))

    return tuple(
        Block(
            cases={
                name: Slices(baseline_s=arm(base_s), candidate_s=arm(base_s))
                for name, base_s in zip(CASES, (1e-3, 5e-3), strict=True)
            },
            conditions=BlockConditions(
                block=number, duration_s=5.0, steal_ratio=0.0, involuntary_switches=0, control_s=(1e-3,)
            ),
        )
        for number in range(blocks)
    )


def of(blocks, case="quick", design=Design.INTERLEAVED, effect=0.0):
    return sample(blocks, case, design, effect)


def test_windows_of_the_same_recording_share_no_block():
    windows = separate(stream(25), size=10, confirmation=3)
    used = [block.conditions.block for window in windows for block in window.blocks]
    assert used == list(range(20))
    assert [block.conditions.block for block in windows[0].further] == list(range(10, 20))
    assert [block.conditions.block for block in windows[0].following] == [20, 21, 22]


@pytest.mark.parametrize("blocks", [12, 14, 25, 60])
def test_no_block_stands_twice_in_a_window(blocks):
    for window in separate(stream(blocks), size=10, confirmation=2):
        used = [block.conditions.block for block in (*window.blocks, *window.further, *window.following)]
        assert len(set(used)) == len(used)
        assert len(window.blocks) == 10


def test_resampled_windows_keep_the_order_of_the_blocks_and_exchange_whole_blocks():
    recorded = stream(30)
    (window,) = resampled(recorded, size=12, confirmation=2, count=1, seed=4)
    numbers = [block.conditions.block for block in window.blocks]
    assert numbers == list(range(numbers[0], numbers[0] + 12))
    exchanged = [
        {case: block.cases[case] != recorded[number].cases[case] for case in CASES}
        for number, block in zip(numbers, window.blocks, strict=True)
    ]
    assert all(len(set(entry.values())) == 1 for entry in exchanged)
    assert 0 < sum(entry["quick"] for entry in exchanged) < 12


def test_nothing_is_resampled_from_a_recording_that_is_too_short():
    assert resampled(stream(5), size=12, confirmation=2, count=3, seed=4) == ()


def test_a_slowdown_goes_into_the_candidate_of_one_case_only():
    recorded = stream(2)
    slower = injected(recorded, "quick", 0.5)
    assert slower[0].cases["slow"] == recorded[0].cases["slow"]
    assert slower[0].cases["quick"].baseline_s == recorded[0].cases["quick"].baseline_s
    assert slower[0].cases["quick"].candidate_s[0] == pytest.approx(1.5 * recorded[0].cases["quick"].candidate_s[0])


def test_both_designs_have_as_many_processes():
    recorded = stream(7)
    paired, halves = of(recorded), of(recorded, design=Design.SEQUENTIAL)
    assert len(paired.baseline) == len(paired.candidate) == 7
    assert len(halves.baseline) == len(halves.candidate) == 6
    assert halves.baseline[:2] == (recorded[0].cases["quick"].baseline_s, recorded[0].cases["quick"].candidate_s)
    assert recorded[3].cases["quick"].baseline_s not in (*halves.baseline, *halves.candidate)


def test_rounds_take_whole_blocks_by_turns_and_turn_their_order_round():
    recorded = stream(11)
    turns = of(recorded, design=Design.ROUNDS)
    numbers = {arm: [n for n, block in enumerate(recorded) if block.cases["quick"].baseline_s in getattr(turns, arm)]
               for arm in ("baseline", "candidate")}  # fmt: skip
    assert numbers == {"baseline": [0, 3, 4, 7], "candidate": [1, 2, 5, 6]}
    assert len(turns.baseline) == len(turns.candidate) == 8


def test_a_rule_is_shown_its_own_order_and_that_of_pairs():
    shown = {rule.name: [design.value for design in rule.designs] for rule in rules.peer_rules(rules.median_score)}
    assert shown["asv continuous"] == ["rounds", "interleaved"]
    assert shown["benchstat"] == ["sequential", "interleaved"]


def test_the_slowdown_of_a_sample_is_that_of_its_blocks():
    recorded = stream(4)
    multiplied = of(recorded, effect=0.1).candidate
    assert multiplied == of(injected(recorded, "quick", 0.1)).candidate


@pytest.mark.parametrize("effect", [0.0, 0.015, 0.05])
def test_pyperf_answers_as_its_command_does(tmp_path, effect):
    given = of(stream(6), effect=effect)
    for name, processes in (("a", given.baseline), ("b", given.candidate)):
        runs = [
            pyperf.Run(list(values), metadata={"name": "quick", "loops": 1}, collect_metadata=False)
            for values in processes
        ]
        pyperf.Benchmark(runs).dump(str(tmp_path / f"{name}.json"))
    command = [sys.executable, "-m", "pyperf", "compare_to", "a.json", "b.json", "--table", "--table-format", "md"]
    said = subprocess.run([*command, "--min-speed", "2"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert bool(slower_of(said.stdout)) is (rules.pyperf_score(given) > 0.02)


@pytest.mark.parametrize(
    "score",
    [
        rules.pyperf_score,
        rules.median_score,
        rules.minimum_score,
        rules.mean_score,
        rules.single_run_score,
        rules.benchstat_score,
        rules.criterion_score,
    ],
)
def test_every_rule_sees_a_large_slowdown_and_no_speed_up(score):
    assert score(of(stream(12), effect=0.5)) == pytest.approx(0.5, abs=0.02)
    assert score(of(stream(12), effect=-0.3)) < 0


@pytest.mark.parametrize("score", [rules.pyperf_score, rules.benchstat_score, rules.criterion_score])
def test_rules_with_a_test_do_not_score_what_is_not_significant(score):
    same = tuple(tuple(entry) for entry in of(stream(12)).baseline)
    assert score(Sample(baseline=same, candidate=same)) == rules.NOT_SLOWER


def test_peers_are_named_by_tool_and_origin():
    peers = rules.peer_rules(rules.median_score)
    assert len({peer.name for peer in peers}) == len(peers)
    assert all(peer.origin == "own code" or peer.origin.startswith("re-implemented: ") for peer in peers)
    assert {peer.threshold for peer in peers if peer.name.startswith("asv")} == {0.1, 0.02}


def test_perfguard_leaves_identical_arms_alone_and_finds_the_slowed_case():
    (window,) = separate(stream(32), size=20, confirmation=12)
    assert decide(window).red == ()
    found = decide(window, case="slow", effect=0.1)
    assert found.red == ("slow",)
    assert found.outcome == "regressed"
    assert found.confirmation_blocks == CONFIRMATION_ANALYSES[0]


def test_perfguard_stops_early_where_everything_is_clear():
    (window,) = separate(stream(52, sd=0.0005), size=40, confirmation=12)
    found = decide(window)
    assert found.outcome == "pass"
    assert found.blocks < 0.8 * 40


def costly(blocks, **wall_s):
    """The same blocks, of which it is known what each case took."""
    return tuple(
        replace(block, cases={name: replace(each, wall_s=wall_s[name]) for name, each in block.cases.items()})
        for block in blocks
    )


def test_perfguard_reaches_more_blocks_where_a_case_leaves_that_took_most_of_them():
    # Blocks of five seconds; `slow` is slowed too little to be detected, `quick` is decided early.
    recorded = tuple(
        replace(block, cases={**block.cases, "slow": noisy.cases["slow"]})
        for block, noisy in zip(stream(60, sd=0.0002), stream(60, sd=0.02), strict=True)
    )
    told, untold = (
        decide(separate(blocks, size=20, confirmation=10)[0])
        for blocks in (costly(recorded, quick=4.0, slow=0.5), recorded)
    )
    assert (untold.blocks, untold.seconds) == (20, 100.0)
    assert told.blocks > 30
    assert told.seconds <= 100.0


def test_cases_that_nobody_left_cost_what_the_recording_says():
    (block,) = costly(stream(1), quick=4.0, slow=0.5)
    assert [cost_s(block, left) for left in ((), ("slow",), ("quick", "slow"))] == [5.0, 4.5, 0.5]
    assert cost_s(stream(1)[0], ("quick",)) == 5.0


def test_a_flag_that_does_not_come_back_is_not_red():
    recorded = stream(32)
    (window,) = separate(recorded, size=20, confirmation=12)
    blocks = injected(window.blocks, "slow", 0.1)
    found = decide(replace(window, blocks=blocks))
    assert found.flagged == ("slow",)
    assert found.red == ()
    assert found.open == ("slow",)


def rows():
    pieces = replay.cut({"one": stream(60)}, gate_minutes=1.5, set_up_s=15, extra=3, seed=1)
    peers = rules.peer_rules(rules.median_score)
    return [
        {
            "key": key,
            "gate_minutes": 1.5,
            "scheme": "separate" if "separate" in key else "resampled",
            **replay.decided(window, number, peers, 0.005),
        }
        for number, (key, window) in enumerate(pieces.windows)
    ]


def test_a_replay_adds_up_to_a_row_for_each_rule_and_design():
    replayed = rows()
    found = replay_summary.summarize(replayed, rules.peer_rules(rules.median_score))
    own = found[0]
    assert (own.name, own.false_alarms.count, own.false_alarms.trials, own.resampled.trials) == ("perfguard", 0, 4, 3)
    assert own.power[0.5] == 1.0
    blind = next(s for s in found if s.name.startswith("github-action-benchmark") and not s.name.endswith("tuned"))
    assert blind.effect_80 is None
    tuned = next(s for s in found if s.name == "github-action-benchmark 200 %, tuned")
    assert tuned.effect_80 is not None
    assert len({(s.name, s.design) for s in found}) == len(found)


def test_another_recording_adds_gates_and_renames_none():
    options = {"gate_minutes": 1.5, "set_up_s": 15, "extra": 3, "seed": 1}
    first = dict(replay.cut({"one": stream(60)}, **options).windows)
    both = dict(replay.cut({"one": stream(60), "two": stream(40, seed=2)}, **options).windows)
    assert {key: both[key] for key in first} == first
    assert len(both) > len(first)


def test_a_recording_without_a_whole_gate_is_refused():
    with pytest.raises(SystemExit, match="record for longer"):
        replay.cut({"one": stream(7)}, gate_minutes=10, set_up_s=0, extra=0, seed=1)
    with pytest.raises(SystemExit, match="nothing is recorded"):
        replay.cut({}, gate_minutes=10, set_up_s=0, extra=0, seed=1)


def test_a_tuned_threshold_leaves_one_gate_in_a_hundred_red():
    highest = [number / 1000 for number in range(200)]
    threshold = replay_summary.tuned_threshold(highest)
    assert sum(score > threshold for score in highest) == 2
    assert replay_summary.tuned_threshold([float("-inf")] * 50) == 0.0


def test_the_best_peer_is_one_that_is_seldom_red_for_nothing():
    def summary(name, red, effect):
        return replay_summary.RuleSummary(
            name=name,
            design="sequential",
            is_own_design=True,
            origin="own code",
            threshold=0.02,
            false_alarms=replay_summary.rate(red, 100),
            resampled=replay_summary.rate(0, 0),
            power={},
            effect_80=effect,
            right_culprit=None,
        )

    found = (
        summary("perfguard", 0, 0.01),
        summary("wild", 90, 0.02),
        summary("calm", 2, 0.06),
        summary("blind", 0, None),
    )
    assert replay_summary.best_peer(found, tuned=False, own_design=True).name == "calm"
    assert replay_summary.best_peer(found, tuned=True, own_design=True) is None
