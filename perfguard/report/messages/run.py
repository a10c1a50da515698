"""Messages on a run as a whole: what was measured, with what, and what went wrong beside the verdicts."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.facts import Fact
from perfguard.report.messages.message import Message
from perfguard.report.messages.template import fill

_CAUSES = (
    "[[{stolen_share} of the time stolen by the hypervisor]]",
    "[[{involuntary_switches:involuntary context switch}]]",
    "[[control workload {control_ratio} slower than usual]]",
)
_REMEDIES = {
    "times_only": "the baseline holds times only. Record it again: perfguard baseline update",
    "other_seed": "the baseline has seed {baseline_seed:id}, this run {seed:id}. Leave `seed` unset",
    "other_data": "no round used the data of a round of the baseline",
}


def _causes(found: Fact) -> str:
    return ", ".join(text for text in (fill(cause, found) for cause in _CAUSES) if text)


def _disturbed(found: Fact) -> str:
    return fill("block {block} {is_voided?voided|disturbed, but kept}: ", found) + _causes(found)


def _unchecked(found: Fact) -> str:
    remedy = fill(_REMEDIES.get(str(found.values.get("cause")), "unknown"), found)
    return fill("results not compared of {case_ids:names}: ", found) + remedy


_MORE = "[[ and {more} more]]"

RUN: Mapping[str, Message] = {
    "run.started": Message(text="perfguard {version}, seed {seed:id}", about="Version and seed of every run."),
    "run.variables_dropped": Message(
        text="environment variables not passed to the workers: {names}. "
        "Keep all with --env-profile production, or set one with env:KEY=VALUE",
        about="Variables of perfguard's own environment that workers do not get.",
    ),
    "run.injected": Message(
        text="{case_id}: injected change of {log_ratio}; this run tests the gate, not the code",
        about="`--inject` changed the time of a case on purpose.",
    ),
    "run.fewer_samples": Message(
        text="{samples:sample} per block instead of {wanted}, so that more blocks fit the budget",
        about="Calibration reduced the samples of a block.",
    ),
    "run.budget_short": Message(
        text="budget too short: {blocks:block} of {block_s:duration} in {budget_s:duration}, a verdict needs {needed}. "
        "Use --budget {enough_s:number} or fewer cases",
        about="Fewer blocks fit the budget than a verdict needs.",
    ),
    "run.cases_skipped": Message(
        text="skipped by their own suites: {case_ids:names}",
        about="An adopted suite skips cases, so they are not measured.",
    ),
    "run.max_blocks_reached": Message(
        text="stopped at --max-blocks ({blocks:block}), {left_s:duration} of the budget left",
        about="The cap on blocks ended the measuring while cases were undecided.",
    ),
    "run.rules_of_revision": Message(
        text="configuration, benchmarks, baselines and allow-list are those of {commit}",
        about="`--policy-from`, or a gate of a pull request.",
    ),
    "run.rules_changed": Message(
        text=f"the candidate changes {{files}}{_MORE}; the changes apply from the next gate on",
        about="A candidate changes the gate's own rules, which do not count for itself.",
    ),
    "run.unconfined": Message(
        text="this kernel has no Landlock: measured code could have changed files of this job, also the verdict",
        about="Code of a pull request ran without file-system confinement.",
    ),
    "run.raw_files_incomplete": Message(
        text="pyperf files are incomplete: {error}", about="Raw files of a worker could not be joined."
    ),
    "arms.too_many_threads": Message(
        text="{arm} sets {name}={value} on {cpus:CPU}: threads share CPUs, so timings are slow and noisy",
        about="An arm asks for more threads than CPUs.",
    ),
    "arms.identity_unproven": Message(
        text="both arms report the same code, but their sources differ; untrusted code proves nothing: timings decide",
        about="A confined candidate claims to be identical, and git does not confirm it.",
    ),
    "arms.same_code": Message(
        text="both arms ran the same code in the same environment (A/A)", about="The arms hash identical."
    ),
    "arms.files_differ": Message(
        text=f"imported files that differ: {{files}}{_MORE}", about="Which imported files differ between the arms."
    ),
    "arms.packages_differ": Message(
        text="installed packages differ[[: {changed}]][[ and {more} more]][[; {only_in_baseline} only in the baseline]]"
        "[[; {only_in_candidate} only in the candidate]]",
        about="The arms' interpreters have other packages or versions.",
    ),
    "arms.same_code_as_stored": Message(
        text="code identical to the {of}; any difference is the machine",
        about="The candidate imports the same files as the commit of the stored baseline or anchor.",
    ),
    "arms.worker_not_started": Message(
        text="a worker of the {arm} did not start: {error}", about="One block was lost; the run goes on."
    ),
    "control.missing": Message(text="no control workload: {error}", about="The control workload could not be started."),
    "control.no_answer": Message(
        text="the control workload did not answer in block {block}",
        about="A block has no time of the control workload.",
    ),
    "host.waited_for_cpu": Message(
        text="steps waited for a CPU {waited_share} of the time: other processes use CPU {cpus}, or an arm has more "
        "threads than CPUs. Stop them, or measure on others (--cpus)",
        about="Something else ran on the measured CPUs.",
    ),
    "host.block_disturbed": Message(
        text=_disturbed, about="A block in which the host was disturbed, and whether it counts."
    ),
    "host.block_causes": Message(text=_causes, about="What disturbed a block, where the block itself is known."),
    "host.speed_changed": Message(
        text="machine is {log_ratio:slowdown} than at the baseline; intervals are widened",
        about="The control workload takes another time than when the stored baseline was recorded.",
    ),
    "signal.missing": Message(
        text="not measured: {signal}[[ ({arm})]]: {why}", about="A signal that this machine or arm cannot be asked for."
    ),
    "ops.compared_with_machine": Message(
        text="op counts also compared with {machine_id} ({date}, commit {commit}): {changed} of {cases:case} differ",
        about="Op counts of another machine with the same instruction sets were compared, too.",
    ),
    "ops.not_counted": Message(
        text="ops of {case_id} not counted: {error}", about="The ops of a case could not be counted."
    ),
    "ops.not_compared": Message(
        text="ops not compared[[ in {case_id}]]: {error}", about="No culprits can be named, of a case or at all."
    ),
    "baseline.none_stored": Message(
        text="no stored baseline for this machine and suite: git:HEAD is compared with the working tree"
        "[[. Record one: perfguard baseline update --suite {suite}]]",
        about="A gate without a stored baseline.",
    ),
    "baseline.other_state": Message(
        text="the machine's state changed since the baseline: its commit is measured again. "
        "Record a new one: perfguard baseline update",
        about="A stored baseline's times do not fit the machine as it is now.",
    ),
    "baseline.compared": Message(
        text="baseline: {path}, {date}, commit {commit}, {rounds:round}. "
        "Only larger changes can be excluded; --baseline git:REV sees smaller ones",
        about="Which stored baseline a gate compares with.",
    ),
    "baseline.noisy": Message(
        text="{noisy} of {cases:case} vary by more than {limit_ratio} between rounds (most: {case_id}, {worst_ratio}). "
        "Gates against this baseline measure its commit again; see perfguard doctor",
        about="A recorded baseline is too noisy to decide much.",
    ),
    "stored.machine_moved": Message(
        text="most cases differ from the stored baseline: probably the machine, not the code",
        about="At least half of the cases moved against the stored numbers.",
    ),
    "stored.cannot_pair": Message(
        text="undecided cases cannot be measured again with the baseline's commit",
        about="What the stored numbers do not clear stays undecided; the next note says why.",
    ),
    "stored.not_paired": Message(
        text="changes against the stored baseline were not confirmed with its commit",
        about="The verdict goes by stored numbers alone; the next note says why.",
    ),
    "pairing.no_commit": Message(
        text="the {of} names no commit of this repository", about="The code of a stored baseline is not known."
    ),
    "pairing.other_software": Message(
        text="software differs from the {of}: {then} → {now}. "
        "Compare the two environments: --baseline python:OLD --candidate python:NEW",
        about="Packages or interpreter changed since a baseline was stored.",
    ),
    "pairing.commit_missing": Message(
        text="commit {commit} of the {of} is not in this clone: git fetch --unshallow, or record another {of}",
        about="The clone lacks the commit of a stored baseline.",
    ),
    "pairing.unusable": Message(text="{error}", about="The commit of a stored baseline cannot be measured."),
    "result.unchecked": Message(text=_unchecked, about="Cases whose results could not be compared, and why."),
    "drift.paired": Message(
        text="compared with the anchor of {since} ({origin}): red where slower by more than {margin_ratio} in total",
        about="A gate with `--anchor`.",
    ),
    "drift.not_measured": Message(
        text="drift since the anchor not measured. Compare with its commit: perfguard gate --anchor",
        about="No rounds were measured that could be compared with the anchor.",
    ),
    "drift.not_compared": Message(
        text="not compared with the anchor of {since}",
        about="An anchor that does not fit this run; the next note says why.",
    ),
    "drift.measured": Message(
        text="{case_id}: {log_ratio} {log_ratio:interval} since the anchor of {since}, "
        "{is_beyond?beyond|not shown beyond} {margin_ratio}",
        about="How far a case is from its anchor, by stored numbers.",
    ),
    "drift.unknown": Message(
        text="{case_id}: drift since the anchor of {since} unknown",
        about="A case could not be compared with the anchor.",
    ),
    "drift.not_paired": Message(
        text="drift since the anchor of {since} not confirmed with its commit",
        about="Drift by stored numbers alone is not red; the next note says why.",
    ),
    "drift.not_confirmed": Message(
        text="{case_id}: drift not confirmed with the anchor's commit ({outcome})",
        about="A case that seemed to have drifted has not.",
    ),
    "allowance.expired": Message(
        text="allow-list: {pattern} expired on {until}. Fix it, or remove the entry: "
        "perfguard allow --remove '{pattern}'",
        about="An entry of the allow-list that no longer applies.",
    ),
    "allowance.used": Message(
        text="allow-list: {pattern} up to {limit_ratio} until {until}: {why} (used by {case_ids:names})",
        about="An entry of the allow-list that accepted a slowdown.",
    ),
    "allowance.unused": Message(
        text="allow-list: {pattern} up to {limit_ratio} until {until}: {why} (not used)",
        about="An entry of the allow-list that this run did not need.",
    ),
    "profile.whole_script": Message(
        text="no optimizer step in the script's main thread: the whole script was profiled as one step. "
        "If it trains in other processes (torchrun, mp.spawn), name the script that one of them runs",
        about="A profiled script without steps.",
    ),
    "profile.script_ended": Message(text="{why}", about="How a profiled script ended."),
    "profile.not_projected": Message(text="{case_id} not projected: {error}", about="A case has no roofline."),
    "adopted.other_kinds": Message(
        text="asv, {place}: {kinds} not measured; only time_* is",
        about="Benchmarks of asv that perfguard does not run.",
    ),
    "adopted.ignored_settings": Message(
        text="asv, {place}: {names} ignored; perfguard measures its own way",
        about="asv's settings of measuring do not apply.",
    ),
    "adopted.skipped_by_setup": Message(
        text="asv, {place}: {number} skipped by NotImplementedError in setup", about="asv cases that skip themselves."
    ),
    "adopted.no_test": Message(
        text="pytest-benchmark, {place}: no test uses the fixture '{fixture}'",
        about="An adopted file without benchmarks.",
    ),
    "adopted.skipped_by_marks": Message(text="{tool}: {number} skipped by marks", about="Tests that pytest skips."),
    "adopted.weaving_unsupported": Message(
        text="{tool}: {number} not measured; benchmark_weave is not supported", about="Tests that use benchmark_weave."
    ),
    "adopted.no_timer": Message(
        text="timer, {place}: importing it makes no Timer; code under `if __name__ == '__main__'` does not run",
        about="An adopted file without a torch Timer.",
    ),
    "adopted.cpp_statements": Message(
        text="{tool}: {number} in C++ not measured; only Python statements are", about="Timers in C++."
    ),
    "adopted.own_threads": Message(
        text="{tool}: {number} on num_threads = {threads}, whatever CPUs are used",
        about="Timers that set their threads.",
    ),
}
"""Every code of a run's notes."""
