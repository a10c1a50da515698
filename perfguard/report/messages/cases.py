"""Why a case has no measurements; what the child itself said is quoted."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.report.messages.message import Message

CASES: Mapping[str, Message] = {
    "case.raised": Message(
        text="[[{arm} failed: ]]{error}", about="The benchmark raised an exception, or refused to be timed."
    ),
    "case.missing": Message(text="[[{arm} failed: ]]{error}", about="An arm has no such benchmark."),
    "case.skipped": Message(text="skipped by its suite: {error}", about="The case's own suite skips it."),
    "case.timed_out": Message(
        text="[[{arm} failed: ]]no answer in {timeout_s:duration}; worker killed",
        about="A worker did not answer in time.",
    ),
    "case.killed": Message(
        text="[[{arm} failed: ]]worker killed (signal 9), usually for lack of memory; see `dmesg`",
        about="Something outside of perfguard killed a worker.",
    ),
    "case.crashed": Message(text="[[{arm} failed: ]]worker crashed with {signal}", about="A worker died of a signal."),
    "case.exited": Message(
        text="[[{arm} failed: ]]worker exited with code {exit_code}", about="A worker ended too early."
    ),
    "case.moved_cpus": Message(
        text="[[{arm} failed: ]]the benchmark moved its process to CPUs {cpus} instead of {expected_cpus}; it "
        "must leave the affinity alone",
        about="The affinity of a worker changed after a benchmark was set up.",
    ),
    "case.worker_failed": Message(
        text="[[{arm} failed: ]]{error}", about="A worker broke the protocol, or lost its CPUs when it imported torch."
    ),
    "case.zero_time": Message(
        text="a sample took no time: the recording is damaged", about="A recorded time is not positive."
    ),
    "case.no_round": Message(text="no round completed", about="Nothing was measured of a case."),
}
