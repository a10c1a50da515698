"""The run rules, one function each: a tree in, broken rules out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perfguard.records.facts import Fact
from perfguard.tasks.checking import log_rules, package_rules, plan_rules
from perfguard.tasks.checking.tree import ResultTree

Rule = Callable[[ResultTree], Iterator[Fact]]

RULES: tuple[Rule, ...] = (
    log_rules.files_are_there,
    log_rules.both_modes_are_there,
    log_rules.systems_are_described,
    log_rules.loadgen_reports_no_error,
    log_rules.modes_and_scenarios_fit,
    log_rules.results_are_valid,
    log_rules.early_stopping_was_met,
    log_rules.seeds_are_the_rounds,
    log_rules.queries_are_enough,
    log_rules.durations_are_long_enough,
    log_rules.settings_are_left_alone,
    log_rules.no_audit_config,
    log_rules.summaries_say_what_logs_say,
    log_rules.every_example_has_one_answer,
    package_rules.stamps_agree_with_logs,
    package_rules.claims_follow_from_logs,
    plan_rules.claims_follow_from_measurements,
    package_rules.quality_reaches_its_target,
    package_rules.answers_are_those_that_were_judged,
    package_rules.speed_runs_answer_as_accuracy_runs,
    package_rules.models_are_the_same,
    package_rules.data_is_the_tasks,
    package_rules.code_is_the_same,
    package_rules.tree_was_clean,
    package_rules.precision_is_what_was_asked_for,
    package_rules.times_come_before_answers,
    package_rules.pauses_were_made,
    package_rules.files_are_unchanged,
    package_rules.runs_are_all_there,
    plan_rules.packaged_tasks_are_unchanged,
    plan_rules.task_files_hold_the_task,
    plan_rules.plans_are_the_rules,
    plan_rules.systems_are_whole,
    plan_rules.runs_are_what_their_folders_say,
    plan_rules.every_round_was_measured,
)
"""All of them."""


def broken_rules(tree: ResultTree) -> tuple[Fact, ...]:
    """Every rule that is broken, with its place."""
    return tuple(found for rule in RULES for found in rule(tree))
