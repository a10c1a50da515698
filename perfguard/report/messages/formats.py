"""What `perfguard import` says of files of other tools."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.report.messages.message import Message

FORMATS: Mapping[str, Message] = {
    "import.no_unit": Message(
        text="unit[[ (kept in {kept_in})]]", about="The file gives no unit, so the values are not known to be times."
    ),
    "import.no_samples": Message(
        text="raw samples[[ (kept with {option})]]",
        about="The file holds a summary of a benchmark and none of its samples.",
    ),
    "import.one_repetition": Message(
        text="more than one repetition (measured with --benchmark_repetitions=N)",
        about="Google Benchmark measured a benchmark once.",
    ),
    "import.debug_build": Message(
        text="release build of the benchmark library: debug checks slow everything down",
        about="Google Benchmark's library was built with debug checks.",
    ),
    "import.frequency_scaling": Message(
        text="fixed CPU frequency: frequency scaling was on", about="Google Benchmark warned of frequency scaling."
    ),
    "import.bare_format": Message(
        text="raw samples, number of samples, machine, commit, versions (the format has none)",
        about="The file is in Bencher's format, which holds medians alone.",
    ),
    "import.left_out_failed": Message(
        text="{benchmarks:benchmark} left out (failed, skipped or not a number): {names:names}",
        about="The file holds no number for some benchmarks, because they failed or were skipped.",
    ),
    "import.left_out_empty": Message(
        text="{benchmarks:benchmark} left out (no values): {names:names}",
        about="The file holds some benchmarks without any value.",
    ),
    "import.left_out_calibrations": Message(
        text="{benchmarks:benchmark} left out (only loops were calibrated): {names:names}",
        about="pyperf calibrated the loops of some benchmarks and did not measure them.",
    ),
    "import.not_a_time": Message(
        text="[[{place}: ]]not a time in seconds",
        about="A series cannot be compared: it is no time, or its unit is unknown.",
    ),
    "import.only_a_summary": Message(
        text="[[{place}: ]]no raw samples, only a summary",
        about="A series cannot be compared: there are no samples to estimate the noise from.",
    ),
    "import.unknown_processes": Message(
        text="[[{place}: ]]the file does not say which process a sample is from, so differences between processes are "
        "unknown",
        about="A series cannot be compared: noise between processes cannot be estimated.",
    ),
    "import.too_few_processes": Message(
        text="[[{place}: ]]all samples are from one process; at least {needed_processes} are needed",
        about="A series cannot be compared: one process says nothing of the noise between processes.",
    ),
    "import.no_control": Message(
        text="no control workload was timed, so a slower machine looks like slower code",
        about="A gate cannot use the series as a baseline: only perfguard times the control workload beside the cases.",
    ),
    "import.speed_assumed": Message(
        text="no control workload was timed: the comparison holds only if the machine was equally fast both times",
        about="The effects of a comparison assume that both files were measured at the same speed of the machine.",
    ),
    "import.other_machine": Message(
        text="different machines ({baseline}; {candidate}): a difference may come from the machine",
        about="The two files name different machines.",
    ),
    "import.not_a_gate": Message(
        text="not a verdict: the two were not measured in turns on one host, and their results were not compared; "
        "for a verdict run `perfguard compare`",
        about="Printed with each comparison of imported files.",
    ),
}
