"""The project of `perfguard demo`, and what is done with it; its gate is replaced."""

from __future__ import annotations

import subprocess

import pytest
from click.testing import CliRunner

from perfguard.cli import group
from perfguard.cli.commands import demo
from perfguard.errors import UsageError

SLOWER = ["-    optimizer = torch.optim.Adam(model.parameters(), fused=True)",
          "+    optimizer = torch.optim.Adam(model.parameters())"]  # fmt: skip


@pytest.fixture
def commands(monkeypatch):
    """What perfguard was asked to do, and the exit codes that it gives."""
    asked, codes = [], {"gate": 1, "report": 0}
    run = subprocess.run

    def fake(command, **options):
        if "perfguard" not in command:
            return run(command, **options)
        asked.append(tuple(command[3:]))
        return subprocess.CompletedProcess(command, codes[command[3]])

    monkeypatch.setattr(demo.subprocess, "run", fake)
    return asked, codes


def demonstrated(folder, *arguments):
    return CliRunner().invoke(group, ["demo", "-o", str(folder), "--no-open", *arguments])


def test_a_step_that_lost_its_fusion_is_gated_and_reported(commands, tmp_path):
    found = demonstrated(tmp_path / "new" / "demo", "--budget", "1m")
    assert found.exit_code == 0, found.output
    assert commands[0] == [("gate", "--wait", "--budget", "60"), ("report", "-o", "report.html", "--force")]
    diff = subprocess.run(
        ["git", "diff", "--unified=0"], cwd=tmp_path / "new" / "demo", capture_output=True, text=True, check=True
    ).stdout
    assert diff.splitlines()[-2:] == SLOWER
    assert all(line in found.output for line in SLOWER)


def test_its_gate_and_its_benchmark_are_those_of_the_configuration(commands, tmp_path):
    demonstrated(tmp_path / "demo")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=tmp_path / "demo", capture_output=True, text=True, check=True
    ).stdout
    assert listed.split() == [".gitignore", "perfguard.toml", "train.py"]
    compile((tmp_path / "demo" / "train.py").read_text(), "train.py", "exec")


def test_without_torch_nothing_is_written_and_the_command_that_installs_it_is_printed(commands, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "_has_torch", lambda: False)
    found = demonstrated(tmp_path / "demo")
    assert isinstance(found.exception, UsageError)
    assert "pip install 'perfguard[torch]'" in str(found.exception)
    assert not commands[0]
    assert not (tmp_path / "demo").exists()


def test_a_gate_that_finds_nothing_gives_its_own_exit_code(commands, tmp_path):
    commands[1]["gate"] = 4
    assert demonstrated(tmp_path / "demo").exit_code == 4
    commands[1]["gate"] = 0
    assert demonstrated(tmp_path / "other").exit_code == 3
    assert [command[0] for command in commands[0]] == ["gate", "gate"]


def test_a_folder_with_something_in_it_is_left_alone(commands, tmp_path):
    (tmp_path / "mine").write_text("")
    found = CliRunner().invoke(group, ["demo", "-o", str(tmp_path), "--no-open"])
    assert isinstance(found.exception, demo.UsageError)
    assert "is not empty; choose another folder" in str(found.exception)
    assert commands[0] == []
