"""How much a command says while it measures, on a terminal and in a log."""

from __future__ import annotations

import io

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from perfguard.cli import progress as module
from perfguard.cli.commands.calibrate import calibrate_command as calibrate
from perfguard.cli.commands.measure import gate_command as gate
from perfguard.cli.diagnostics import Verbosity
from perfguard.cli.measuring import show
from perfguard.cli.options import progress_options
from perfguard.cli.progress import make_progress
from perfguard.records import events as happened
from perfguard.records.facts import Severity, fact, recorded_text
from perfguard.records.run import Arm
from perfguard.watch.sources.event_tail import EventTail
from tests.changed_values import replace
from tests.recorded_runs import DATA
from tests.unit.report.test_rendered_results import MEASURED

CASES = tuple(f"kernel.linear[m={size},dtype=bf16,layout=channels_last]" for size in (128, 256, 512, 1024, 2048, 4096))
HOSTILE = "evil[/][bold red]x[/bold red]\x1b[31m"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def a_start(*case_ids: str) -> happened.RunStarted:
    return happened.RunStarted(
        run_id="r", schema=1, mode="paired", suite="pr", case_ids=case_ids, command=(), budget_s=100.0
    )


def a_failure(case_id: str, error: str = "boom") -> happened.CaseFailed:
    return happened.CaseFailed(
        case_id=case_id, arm=Arm.CANDIDATE, missing=False, reason=fact("case.raised", error=error), detail=""
    )


def watch_a_gate(verbosity: Verbosity, *, failing: int = 0) -> None:
    """Everything that a gate of 100 s says to whoever watches it."""
    clock = Clock()
    progress = make_progress(verbosity, clock=clock)
    for text in ("looking at the machine", "preparing the baseline", "preparing the candidate"):
        progress.step(recorded_text(text))
        clock.now_s += 2.0
    progress.observe(a_start(*CASES))
    progress.observe(happened.Noted(fact=recorded_text("seed 7")))
    progress.observe(happened.Noted(fact=fact("recorded.text", severity=Severity.NOTABLE, text="no canary")))
    for case_id in CASES:
        clock.now_s += 1.0
        progress.observe(happened.CaseCalibrated(case_id=case_id, inner_loops=3, iteration_s=1e-3))
    for case_id in CASES[:failing]:
        progress.observe(a_failure(case_id))
    for block in range(22):
        progress.observe(happened.BlockStarted(block=block, hash_seed=1, data_seed=1, case_ids=CASES))
        clock.now_s += 4.0
        progress.observe(
            happened.BlockFinished(block=block, started_at=0.0, duration_s=4.0, steal_ratio=0.0, involuntary_switches=0)
        )
        decided = {CASES[block // 4]: "unchanged"} if block % 4 == 3 else {}
        progress.observe(happened.InterimAnalysis(blocks=block + 1, final=False, decided=decided))
    progress.step(recorded_text("counting what the arms execute"))
    progress.observe(happened.RunFinished(outcome="pass", exit_code=0))


@pytest.mark.parametrize("failing", [0, 6])
def test_a_gate_of_100_s_has_at_most_ten_lines_in_a_log(capsys, failing):
    watch_a_gate(Verbosity.NORMAL, failing=failing)
    out, err = capsys.readouterr()
    assert out == ""
    assert 3 <= len(err.splitlines()) <= 10
    assert "cases answered" in err


def test_a_second_run_is_counted_by_itself_and_the_end_of_the_first_is_said(capsys):
    progress = make_progress(Verbosity.NORMAL, clock=(clock := Clock()))
    for number in (1, 2):
        progress.observe(a_start(*CASES))
        for block in range(3):
            clock.now_s += 30.0
            progress.observe(
                happened.BlockFinished(
                    block=block, started_at=0.0, duration_s=30.0, steal_ratio=0.0, involuntary_switches=0
                )
            )
            progress.observe(
                happened.InterimAnalysis(blocks=block + 1, final=False, decided={CASES[block]: "unchanged"})
            )
        progress.observe(happened.RunFinished(outcome="pass", exit_code=0))
        progress.step(recorded_text(f"gate {number} stored"))
    lines = [line.partition(", at most")[0] for line in capsys.readouterr().err.splitlines()]
    of_a_run = [
        "· 6 cases, measured for",
        "· 1 block",
        "· 2 blocks, 1 of 6 cases answered",
        "· 3 blocks, 2 of 6 cases answered",
    ]
    assert [line.partition(" at most 1 min")[0] for line in lines] == [
        *of_a_run, "· gate 1 stored", *of_a_run, "· gate 2 stored",
    ]  # fmt: skip


def test_quiet_says_nothing(capsys):
    watch_a_gate(Verbosity.QUIET, failing=6)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verbosity", Verbosity)
def test_waiting_for_the_host_is_said_however_quiet_and_however_soon(verbosity, capsys):
    progress = make_progress(verbosity, clock=Clock())
    for owner in ("gate, pid 7", "run, pid 8"):
        progress.step(fact("step.waiting", owner=owner, waited_s=None))
    said = capsys.readouterr().err
    assert ["pid 7" in said, "pid 8" in said] == [True, True]


def test_verbose_says_every_step_note_case_and_block(capsys):
    watch_a_gate(Verbosity.VERBOSE, failing=6)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 + 2 + 6 + 6 + 22 + 5 + 1
    assert "· seed 7" in lines


def test_a_recorded_run_has_at_most_ten_lines(capsys):
    clock = Clock()
    progress = make_progress(Verbosity.NORMAL, clock=clock)
    for seen in EventTail(DATA / "paired" / "events.jsonl").poll().events:
        clock.now_s = seen.t_mono
        progress.observe(seen.event)
    assert 2 <= len(capsys.readouterr().err.splitlines()) <= 10


def test_cases_have_their_short_names(capsys):
    progress = make_progress(Verbosity.VERBOSE)
    progress.observe(a_start(*CASES))
    progress.observe(happened.InterimAnalysis(blocks=3, final=False, decided={CASES[0]: "regressed"}))
    assert capsys.readouterr().err == "· answered after 3 blocks: kernel.linear[m=128] regressed\n"


@pytest.mark.parametrize("verbosity", [Verbosity.NORMAL, Verbosity.VERBOSE])
def test_names_of_cases_are_no_markup_and_move_no_terminal(capsys, verbosity):
    progress = make_progress(verbosity)
    progress.observe(a_start(HOSTILE))
    progress.step(recorded_text(HOSTILE))
    progress.observe(a_failure(HOSTILE, error=HOSTILE))
    drawn = capsys.readouterr().err
    assert "evil[/][bold red]x[/bold red]" in drawn
    assert "\x1b" not in drawn


def test_names_of_cases_are_no_markup_in_the_live_line(monkeypatch):
    drawn = io.StringIO()
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    monkeypatch.setattr(
        "rich.console.Console", lambda **_: Console(file=drawn, force_terminal=True, width=200, color_system=None)
    )
    progress = make_progress(Verbosity.NORMAL)
    progress.observe(a_start(HOSTILE, "b"))
    progress.observe(happened.CaseFinished(block=0, case_id=HOSTILE, baseline_digest=None, candidate_digest=None))
    progress.observe(a_failure(HOSTILE, error=HOSTILE))
    progress.observe(happened.RunFinished(outcome="pass", exit_code=0))
    assert drawn.getvalue().count("evil[/][bold red]x[/bold red]") >= 2
    assert "\x1b[31m" not in drawn.getvalue()


@pytest.mark.parametrize(
    ("arguments", "verbosity"),
    [
        ([], None), (["-q"], Verbosity.QUIET), (["--quiet"], Verbosity.QUIET), (["-v"], Verbosity.VERBOSE),
        (["--verbose"], Verbosity.VERBOSE), (["--no-progress"], Verbosity.QUIET),
    ],
)  # fmt: skip
def test_options_become_a_verbosity(arguments, verbosity):
    found = []

    @click.command()
    @progress_options
    def command(**options):
        found.append(options.get("verbosity"))

    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert found == [verbosity]


@pytest.mark.parametrize("command", [gate, calibrate])
def test_measuring_commands_take_both_flags_and_hide_the_old_one(command):
    shown = {name for option in command.params if not getattr(option, "hidden", False) for name in option.opts}
    assert {"-q", "-v"} <= shown
    assert "--no-progress" not in shown


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [(Verbosity.QUIET, {"grave"}), (Verbosity.NORMAL, {"grave", "notable"}),
     (Verbosity.VERBOSE, {"grave", "notable", "info"})],
)  # fmt: skip
def test_the_result_has_the_notes_that_matter_as_much_as_was_asked_for(capsys, verbosity, shown):
    notes = tuple(fact("recorded.text", severity=severity, text=f"a {severity.value} note") for severity in Severity)
    with pytest.raises(click.exceptions.Exit):
        show(replace(MEASURED, notes=notes), {"verbosity": verbosity})
    drawn = capsys.readouterr().out
    assert {severity.value for severity in Severity if f"a {severity.value} note" in drawn} == shown
