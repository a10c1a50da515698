"""Help by purpose, explanations, completion, and values of options."""

from __future__ import annotations

import json
import os
import re

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete
from click.testing import CliRunner

from perfguard.cli import group
from perfguard.cli.declaring import RatioType, SecondsType
from perfguard.cli.output import print_parts
from perfguard.errors import ExitCode, UsageError
from perfguard.gate.rules.policy import _EXITS
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.explanations import explain, groups
from perfguard.report.messages.catalog import messages


def printed(*arguments):
    found = CliRunner().invoke(group, arguments)
    assert found.exit_code == 0, found.output
    return found.output


def test_commands_are_listed_by_purpose_each_on_a_line():
    lines = printed("--help").splitlines()
    titles = [line for line in lines if re.fullmatch(r"\w[\w ]+:", line)]
    assert titles == [
        "Options:", "Gate:", "Inspect:", "Optimize:", "Train and tasks:", "Baselines and history:", "Share:", "Host:"
    ]  # fmt: skip
    commands = lines[lines.index("Gate:") : lines.index(next(line for line in lines if "Exit codes" in line))]
    rows = [line for line in commands if line and line not in titles]
    assert len(rows) == len(group.list_commands(click.Context(group)))


@pytest.mark.parametrize(
    ("command", "titles"),
    [
        ("gate", ["Arms", "What is measured", "How long", "Where", "Verdict", "Code that is not trusted", "Output"]),
        ("run", ["What is measured", "How long", "Where", "Output"]),
        ("bisect", ["Commits", "What is measured", "How long", "Where", "Verdict", "Output"]),
    ],
)
def test_options_are_listed_by_purpose(command, titles):
    assert re.findall(r"^(\w[\w ]+):$", printed(command, "--help"), re.MULTILINE) == [*titles, "Options"]


@pytest.mark.parametrize("outcome", [*Outcome, *GateOutcome], ids=str)
def test_every_verdict_is_explained_with_its_exit_code(outcome):
    (found,) = explain(outcome.value)
    exits = {gate.value: code for gate, (_, code) in _EXITS.items()}
    code = exits.get(outcome.value, ExitCode.PASS if outcome is GateOutcome.PASS else None)
    assert re.findall(r"Exit code (\d+)", found.meaning) == ([str(int(code))] if code is not None else [])


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_explained(code):
    assert explain(str(int(code)))[0].meaning


def test_every_code_is_explained_and_every_group_lists_its_codes():
    assert all(explain(code)[0].meaning == message.about for code, message in messages().items())
    listed = [found.name for name in groups()["Groups of codes"] for found in explain(f"{name}.")]
    assert sorted(listed) == sorted(messages())


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("blocks", ["block"]),
        ("voided", ["voided block"]),
        ("toggle", ["option, toggle"]),
        ("calibration", ["calibration (of loops)", "calibration (of a machine)", "calibration.absent"]),
        ("too-noisy", ["verdict.too_noisy", "plan.too_noisy"]),
    ],
)
def test_terms_are_explained_by_any_of_their_names(word, names):
    assert [found.name for found in explain(word)][: len(names)] == names


def test_advice_is_explained_as_it_is_printed():
    (found,) = explain("[unfused-optimizer]")
    assert (found.name, found.change) == ("advice.unfused_optimizer", "torch.optim.OPTIMIZER(…, fused=True)")
    assert found.gain
    with pytest.raises(UsageError, match="did you mean 'inconclusive'"):
        explain("inconclusiv")


def test_explanations_are_data_on_request():
    found = json.loads(printed("explain", "4", "--json"))
    assert [each["name"] for each in found] == ["4"]
    assert json.loads(printed("explain", "--format", "json")).keys() == groups().keys()


@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
@pytest.mark.parametrize(
    ("words", "incomplete", "wanted"),
    [
        ([], "ga", ["gate"]),
        (["gate"], "--confi", ["--confine"]),
        (["gate", "--suite"], "q", ["quick"]),
        (["gate", "-c"], "step.b", ["step.bert"]),
        (["gate", "-c"], "step.bert[batch=1,", []),
        (["explain"], "regr", ["regressed", "regression"]),
    ],
)
def test_the_shell_completes_commands_options_suites_cases_and_words(shell, words, incomplete, wanted):
    found = [item.value for item in shell(group, {}, "perfguard", "_X").get_completions(words, incomplete)]
    assert found == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_perfguard(shell):
    assert "_PERFGUARD_COMPLETE" in printed("completion", shell)


def test_cases_of_the_latest_run_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / ".perfguard" / "runs" / "1"
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text('{"event":"run_started","case_ids":["mine[n=1]","mine[n=2]"]}\nrubbish\n')
    complete = BashComplete(group, {}, "perfguard", "_X").get_completions
    assert [item.value for item in complete(["gate", "-c"], "mi")] == ["mine"]
    assert [item.value for item in complete(["gate", "-c"], "mine[")] == ["mine[n=1]", "mine[n=2]"]
    (run / "events.jsonl").write_text("rubbish")
    assert complete(["gate", "-c"], "mi") == []


def test_a_strangers_checkout_completes_nothing_but_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / ".perfguard" / "runs" / "1"
    run.mkdir(parents=True)
    events, complete = run / "events.jsonl", BashComplete(group, {}, "perfguard", "_X").get_completions
    events.write_text(json.dumps({"event": "run_started", "case_ids": ["mine[a];id>/x;#", "mi$(id)", "mi\x1b", 3]}))
    assert complete(["gate", "-c"], "mi") == []
    events.write_text("[" * 100_000)
    assert complete(["gate", "-c"], "mi") == []
    events.unlink()
    events.symlink_to("/dev/zero")
    assert complete(["gate", "-c"], "mi") == []
    events.unlink()
    os.mkfifo(events)
    assert complete(["gate", "-c"], "mi") == []


@pytest.mark.parametrize(("text", "seconds"), [("300", 300), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("2 min", 120)])
def test_times_have_units(text, seconds):
    assert SecondsType().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "five", "5 minutes", "-3", "1e9", "nan"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(click.UsageError, match="write it as 300, 90s, 5m or 2h"):
        SecondsType().convert(text, None, None)


@pytest.mark.parametrize(("text", "ratio"), [("5%", 0.05), ("0.05", 0.05), (" 0.5 % ", 0.005), ("200%", 2.0)])
def test_ratios_are_percentages_or_parts_of_one(text, ratio):
    assert RatioType().convert(text, None, None) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["5", "0", "-1%", "nan", "x"])
def test_what_is_no_ratio_is_refused(text):
    with pytest.raises(click.UsageError, match="written|write"):
        RatioType().convert(text, None, None)


def test_output_fits_the_columns_that_are_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    print_parts(lambda width: [f"{width} {'word ' * 30}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("60 ")
    assert max(map(len, lines)) <= 60 < len(lines[0]) + len(lines[1])
