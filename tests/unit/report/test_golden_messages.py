"""Every message with sample values, as golden files: whoever rewords one changes its entry and its line there.

`PERFGUARD_UPDATE_GOLDEN=1` writes the files anew.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from perfguard.records.facts import fact
from perfguard.report.messages.cases import CASES
from perfguard.report.messages.catalog import describe
from perfguard.report.messages.gate import GATE

GOLDEN = Path(__file__).parent / "golden"
EFFECT = {"log_ratio": 0.06, "log_ratio_lower": 0.05, "log_ratio_upper": 0.07}
FASTER = {"log_ratio": -math.log(3), "log_ratio_lower": -1.2, "log_ratio_upper": -1.0}
LIMITS = {"limit_ratio": 0.03, "until": "2027-01-31"}
MODES = {"slow_ratio": 0.08, "candidate_share": 0.8, "baseline_share": 0.1, "p": 0.0001}
DIFFERENT = {"name": "loss", "baseline": 2.0, "candidate": 1.0, "tolerance_percent": 0.1}
GATE_FACTS = (
    fact("verdict.effect", EFFECT, blocks=8, p=0.00006, cases=4),
    fact("verdict.effect", FASTER, rounds=3, p=0.00006, cases=None),
    fact("verdict.unchanged", EFFECT, blocks=8, equivalence_ratio=0.02),
    fact("verdict.undecided", EFFECT, blocks=8, margin_ratio=0.005, equivalence_ratio=0.02),
    fact("verdict.too_noisy", blocks=8, mde_ratio=0.0343, target_ratio=0.02, needed_blocks=22, more_s=141.0),
    fact("verdict.too_noisy", rounds=3, mde_ratio=0.0343, target_ratio=0.02, needed_blocks=None, more_s=None),
    fact("verdict.beyond_margin", EFFECT, margin_ratio=0.005, level_ratio=0.95, needed_level_ratio=0.992),
    fact("verdict.too_few_blocks", blocks=4, needed=5, more_s=90.0),
    fact("verdict.too_few_blocks", rounds=1, needed=2, more_s=None),
    fact("verdict.demoted", unit="block", block_sd_ratio=0.08, limit_ratio=0.05),
    fact("verdict.allowed_effect", EFFECT),
    fact("verdict.same_code"),
    fact("verdict.not_measured"),
    fact("confirmation.done", EFFECT, confirmed=True, blocks=6),
    fact("confirmation.done", EFFECT, confirmed=False, blocks=10),
    fact("confirmation.impossible"),
    fact("confirmation.not_measured"),
    fact("modes.mixed", MODES, explains_effect=True),
    fact("modes.mixed", {**MODES, **EFFECT}, explains_effect=False),
    fact("modes.luck"),
    fact("result.different", DIFFERENT, change_percent=-50.0, is_scattered=False),
    fact("result.different", {**DIFFERENT, "baseline": 0.0}, change_percent=None, is_scattered=False),
    fact("result.different", DIFFERENT, change_percent=None, is_scattered=True),
    fact("arm.intruded", arm="candidate", other="baseline", cpu_share=0.4, limit_share=0.05),
    fact("allowance.applied", LIMITS, why="new padding code, see #12", entries=None),
    fact("allowance.applied", LIMITS, why="new padding code, see #12", entries=2),
    fact("allowance.exceeded", LIMITS),
    fact("allowance.only_for_time", LIMITS),
    fact("allowance.only_for_same_results", LIMITS),
    fact("allowance.exceeded_by_signals", LIMITS, signals=("cpu", "energy")),
    fact("drift.since_anchor", log_ratio=0.076, since="2026-08-01", in_small_steps=True),
    fact("drift.since_anchor", log_ratio=0.076, since="2026-08-01", in_small_steps=False),
    fact("stored.left_open", outcome="regressed"),
    fact("stored.unchecked", is_guest=True),
    fact("stored.unchecked", is_guest=False),
    fact("stored.paired_with_commit"),
    fact("stored.same_code", same=2, cases=3, others=1),
    fact("stored.same_code", same=3, cases=3, others=None),
    fact("signal.measured", signal="cpu", baseline_s=0.0121, candidate_s=0.0237, blocks=8),
    fact("signal.measured", signal="faults", baseline=0.0, candidate=84.0, blocks=8),
    fact("signal.zero", signal="cpu"),
    fact("signal.too_few_blocks", signal="cpu", blocks=1, needed=5),
    fact("signal.regressed", signal="cpu", baseline_s=0.0121, candidate_s=0.0237, blocks=8, in_same_time=True),
    fact("signal.regressed", signal="memory", baseline_bytes=1e9, candidate_bytes=2e9, blocks=8, in_same_time=False),
    fact("signal.regressed", signal="energy", baseline_j=1.5, candidate_j=3.0, blocks=8, in_same_time=False),
    fact("signal.regressed", signal="faults", baseline=0.0, candidate=84.0, blocks=8, in_same_time=True),
    fact("signal.confirmation", signal="cpu", confirmed=True, blocks=5),
    fact("signal.confirmation", signal="switches", confirmed=False, blocks=10),
    fact("signal.confirmation", signal="instructions", confirmed=False, blocks=None),
    fact("case.not_measured"),
    fact("case.not_in_baseline", error="no benchmark step.bert"),
    fact("case.not_in_stored_baseline"),
    fact("case.all_blocks_voided", blocks=2),
    fact("case.no_common_block"),
    fact("case.no_block"),
    fact("case.unusable_times", error="slice 1 took nan s"),
    fact("gate.passed", unchanged=3, cases=3, equivalence_ratio=0.02, faster=(), allowed=()),
    fact("gate.passed", unchanged=1, cases=3, equivalence_ratio=0.02, faster=("a",), allowed=("b",)),
    fact("gate.cases", outcome="regressed", cases=6, case_ids=("a", "b"), log_ratios=(0.03, 0.05)),
    fact("gate.cases", outcome="failed", cases=6, case_ids=("a", "b", "c", "d", "e"), log_ratios=()),
    fact("gate.host_unstable", disturbed=2, blocks=6, voided=1),
    fact("gate.no_gating_case"),
    fact("arms.identical"),
    fact("run.interrupted", blocks=3),
    fact("run.unfinished"),
    fact("run.measured", cases=1),
    fact("run.cases_failed", failed=1, cases=3),
    fact("bisect.nothing_judged"),
    fact("bisect.same_files"),
    fact("bisect.same_tree"),
    fact("bisect.not_measurable", error="pip failed"),
    fact("bisect.unexplained", case_id="a", culprit_log_ratio=0.03, total_log_ratio=0.08, slower_later=True),
    fact("bisect.unexplained", case_id="a", culprit_log_ratio=0.18, total_log_ratio=0.08, slower_later=False),
)
CASE_FACTS = (
    fact("case.raised", arm="candidate", error="OSError: disk gone"),
    fact("case.raised", error="OSError: disk gone"),
    fact("case.missing", arm="baseline", error="no benchmark step.bert"),
    fact("case.skipped", error="there is no GPU"),
    fact("case.timed_out", arm="candidate", timeout_s=60.0),
    fact("case.killed", arm="candidate"),
    fact("case.crashed", arm="candidate", signal="SIGSEGV"),
    fact("case.exited", arm="candidate", exit_code=3),
    fact("case.moved_cpus", arm="candidate", cpus="0", expected_cpus="0,1"),
    fact("case.worker_failed", arm="candidate", error="no reply"),
    fact("case.zero_time"),
    fact("case.no_round"),
)
ROOMS = {"gate": (GATE, GATE_FACTS), "cases": (CASES, CASE_FACTS)}


@pytest.mark.parametrize("room", ROOMS)
def test_the_messages_of_a_room_read_as_its_golden_file(room):
    _, facts = ROOMS[room]
    text = "".join(f"{sample.code}: {describe(sample)}\n" for sample in facts)
    golden = GOLDEN / f"messages_{room}.txt"
    if os.environ.get("PERFGUARD_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("room", ROOMS)
def test_every_message_of_a_room_has_a_sample(room):
    messages, facts = ROOMS[room]
    assert {sample.code for sample in facts} == set(messages)
