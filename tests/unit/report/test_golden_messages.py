"""Every message with sample values, as golden files: whoever rewords one changes its entry and its line there.

`PERFGUARD_UPDATE_GOLDEN=1` writes the files anew.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from perfguard.records.facts import fact
from perfguard.report.messages.catalog import describe
from perfguard.report.messages.message import sections

GOLDEN = Path(__file__).parent / "golden"
FUSED_KINDS = ("attention", "norm", "recurrent", "activation", "loss", "linear")
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
    fact("verdict.blocks_alike", wider_ratio=0.42),
    fact("verdict.demoted", unit="block", block_sd_ratio=0.08, limit_ratio=0.05),
    fact("verdict.allowed_effect", EFFECT),
    fact("verdict.same_code"),
    fact("verdict.not_measured"),
    fact("verdict.untouched", functions=143),
    fact("verdict.untouched", files=12),
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
    fact("gate.passed", unchanged=1, untouched=2, cases=3, equivalence_ratio=0.02, faster=(), allowed=()),
    fact("gate.untouched", cases=3),
    fact("gate.passed", unchanged=1, cases=3, equivalence_ratio=0.02, faster=("a",), allowed=("b",)),
    fact("gate.cases", outcome="regressed", cases=6, case_ids=("a", "b"), log_ratios=(0.03, 0.05)),
    fact("gate.cases", outcome="failed", cases=6, case_ids=("a", "b", "c", "d", "e"), log_ratios=()),
    fact("gate.longer_budget", enough_s=330.0),
    fact("gate.longer_budget", enough_s=330.0, max_blocks=80),
    fact("gate.second_try", budget_s=330.0, first_s=165.0),
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
FLASH = "_scaled_dot_product_flash_attention_for_cpu"
FUSED = {"lost": (FLASH,), "gained": ("bmm", "_softmax", "masked_fill_", "mul")}
LAYOUT = {"affected_ops": 12, "ops": ("conv2d", "relu", "add", "mul")}
ADAM = {"lost": ("_fused_adam_",), "gained": ("mul_", "addcdiv_", "lerp_", "sqrt"), "before": 1, "after": 1240}
CHANGE_FACTS = (
    fact("optimizer.unfused", ADAM, op="Adam"),
    fact("optimizer.fused", {"lost": ("mul_",), "gained": ("_fused_adam_",), "before": 620, "after": 1}, op="Adam"),
    fact("optimizer.changed", {"lost": ("_foreach_mul_",), "gained": ("mul_",), "before": 4, "after": 8}, op="Adam"),
    fact("optimizer.changed", {"lost": (), "gained": ("_fused_adam_",), "before": 0, "after": 1}, op="Adam"),
    fact("optimizer.replaced", replaced="Adam", op="SGD"),
    fact("optimizer.parameters_changed", op="Adam", before=62, after=60, elements_before=11689512,
         elements_after=11679912),
    *(fact(f"{kind}.{verb}", FUSED) for kind in FUSED_KINDS for verb in ("unfused", "fused")),
    fact("implementation.changed", primitive="convolution", lost="brg:avx512_core", gained="ref:any", others=2,
         calls=156),
    fact("implementation.changed", primitive="mm", lost=("brg",), gained=("no library",), tensors="[8,4] f32"),
    fact("library.changed", lost="matmul brg_matmul:avx512_core", gained="no library", calls=12),
    fact("convolution.changed", lost=("mkldnn_convolution",), gained=("thnn_conv2d",), calls=53),
    fact("layout.lost", LAYOUT, gained="contiguous", extra_reorders=8, extra_copies=1),
    fact("layout.lost", gained="contiguous", kernel_lost="brg", kernel_gained="jit"),
    fact("layout.gained", LAYOUT, fewer_reorders=8, fewer_copies=2),
    fact("layout.changed", affected_primitives=1, ops=("matmul",), lost="ab", gained="ba"),
    fact("dtype.changed", LAYOUT, lost="bf16", gained="f32", fewer_casts=72),
    fact("shapes.changed", LAYOUT, examples=("conv2d [32,64] → [64,64]",)),
    fact("shapes.changed", affected_ops=1, ops=("add",), examples=("add [16] → [1]",), calls_before=1, calls_after=16),
    fact("copies.added", number=1, by="contiguous", tensor="bf16 [2,64,56,56]"),
    fact("copies.added", number=3, by="copy_"),
    fact("copies.removed", number=1, by="clone"),
    fact("reorders.added", number=2, layouts=("abcd → aBcd16b",), written_bytes=3211264),
    fact("reorders.removed", number=1, layouts=(), written_bytes=None),
    fact("reorders.changed", number=4),
    fact("ops.added", ops=("relu", "add"), before=0, after=4),
    fact("ops.removed", ops=("relu",), before=1, after=0),
    fact("ops.replaced", lost=("mul",), gained=("erf", "add"), before=1, after=2),
    fact("ops.moved", LAYOUT, source="Net.a", target="Net.b", others=2),
    fact("calls.added", ops=("relu",), before=9, after=12),
    fact("calls.removed", ops=("relu",), before=1240, after=620),
    fact("allocations.changed", calls_before=15, after=18, size_before_bytes=2 << 20, size_after_bytes=3 << 20,
         more_bytes=1 << 20, is_elsewhere=False),
    fact("allocations.changed", after=2, size_after_bytes=512, is_elsewhere=True),
    fact("cache_misses.changed", before=0, after=1, primitives=("convolution FWD_D",)),
    fact("compile.changed", event="graph_break", before=0, after=2, reasons=("call of print", "numpy")),
    fact("compile.changed", event="recompile", before=1, after=1, reasons=("shape",)),
    fact("op.slower", ops=("addmm",), changed_ratio=0.2, tensors="[8,4] f32"),
    fact("op.slower", ops=("addmm",), changed_ratio=None, tensors=""),
    fact("op.faster", ops=("addmm",), changed_ratio=0.05, tensors=""),
    fact("python.time", is_more=True),
    fact("python.time", is_more=True, phases=("loss", "backward")),
    fact("python.time", is_more=False),
    fact("cost.moved", moved_s=3.1e-4, source="relu", source_module="Net.stem", target="add", target_module="Net.head"),
    fact("ops.went_the_other_way"),
    fact("ops.differ_in_few_steps"),
    fact("op_counts.other_case", counted="step.other", case_id="step.net"),
    fact("op_counts.other_isa", counted="avx2", here="avx512_core_bf16"),
    fact("op_counts.other_isa", counted=None, here="avx2"),
    fact("trace.no_shapes", trace="b.json"),
)  # fmt: skip
FLEET_FACTS = (
    fact("fleet.measuring", shard=12, project="team/nets", attempt=2),
    fact("fleet.accepted", shard=12, attempt=1, exit_code=1),
    fact("fleet.refused", shard=12, attempt=1),
    fact("fleet.lease_expired"),
    fact("fleet.took_too_long", lease_s=960.0),
    fact("fleet.gate_failed", text="no space left on device", exit_code=3),
    fact("fleet.gate_failed", text="the repository has no commit 6f076dd9; push it first", exit_code=None),
    fact("fleet.full", folder="/clones", free_bytes=5 << 20),
    fact("fleet.database_away", shard=12, error="the database fails: refused"),
    fact("fleet.not_fit", host="bench-1"),
    fact("fleet.canary_drifted", host="bench-1", drift_log_ratio=0.05),
    fact("fleet.drained", author="A. Developer", reason="new memory"),
    fact("fleet.drained", author="A. Developer", reason=""),
)
CASE_FACTS = (
    fact("case.raised", arm="candidate", error="OSError: disk gone"),
    fact("case.raised", error="OSError: disk gone"),
    fact("case.below_target", arm="candidate", error="top-1 is 0.11, the target is 0.97: the speed does not count"),
    fact("case.missing", arm="baseline", error="no benchmark step.bert"),
    fact("case.skipped", error="there is no GPU"),
    fact("case.timed_out", arm="candidate", timeout_s=60.0),
    fact("case.killed", arm="candidate"),
    fact("case.crashed", arm="candidate", signal="SIGSEGV"),
    fact("case.clock", arm="candidate", claimed_s=0.5, elapsed_s=0.02),
    fact("case.time_hidden", hidden_ratio=0.4),
    fact("case.cpu_time_hidden", hidden_ratio=0.4),
    fact("case.look_unanswered", arm="candidate"),
    fact("case.exited", arm="candidate", exit_code=3),
    fact("case.overdue", arm="candidate", budget_s=60.0),
    fact("case.moved_cpus", arm="candidate", cpus="0", expected_cpus="0,1"),
    fact("case.worker_failed", arm="candidate", error="no reply"),
    fact("case.zero_time"),
    fact("case.no_round"),
)
ROOMS = {
    name: (sections()[name], facts)
    for name, facts in (("changes", CHANGE_FACTS), ("gate", GATE_FACTS), ("cases", CASE_FACTS), ("fleet", FLEET_FACTS))
}


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
