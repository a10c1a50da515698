"""`perfguard mcp`, asked by the protocol's own client over pipes."""

from __future__ import annotations

import asyncio
import shutil
import sys

import pytest

from tests.recorded_runs import CASE_IDS, DATA, SLOWER

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

SHORT = SLOWER.split("[")[0]


@pytest.fixture
def recorded(project):
    shutil.copytree(DATA / "paired", project.path / ".perfguard" / "runs" / "20260102T030400-paired")
    return project


def asked(project, *questions):
    """Answers of a server in the project's folder, each with whether it is an error; without questions its tools."""
    started = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "perfguard", "mcp"], cwd=project.path, env=dict(project.environment)
    )

    async def ask():
        async with mcp.Client(started) as client:
            if not questions:
                return (await client.list_tools()).tools
            found = [await client.call_tool(name, arguments) for name, arguments in questions]
            return [(answer.is_error, answer.content[0].text) for answer in found]

    return asyncio.run(asyncio.wait_for(ask(), timeout=300))


def test_all_tools_only_read(recorded):
    tools = {tool.name: tool for tool in asked(recorded)}
    assert set(tools) == {"latest_verdict", "culprits", "case_history", "explain"}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools.values())
    assert tools["culprits"].input_schema["required"] == ["case"]


def test_the_verdict_and_the_history_are_what_the_commands_print(recorded):
    shown = recorded.run("show", "--exit-zero").stdout
    history = recorded.run("history", SHORT).stdout
    (failed, verdict), (failed_too, points) = asked(recorded, ("latest_verdict", {}), ("case_history", {"case": SHORT}))
    assert (failed, failed_too) == (False, False)
    assert verdict == shown
    assert points.strip() == history.strip()


def test_the_culprits_of_a_case_have_their_op_and_line(recorded):
    ((failed, text),) = asked(recorded, ("culprits", {"case": SLOWER, "run": "20260102T030400-paired"}))
    assert not failed
    assert "regressed" in text
    assert all(other not in text for other in CASE_IDS if other != SLOWER)
    assert ".py:" in text
    assert asked(recorded, ("culprits", {"case": SHORT}))[0][1] == text


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("latest_verdict", {"run": "absent"}, "there is no run 'absent'"),
        ("culprits", {"case": "absent"}, "has no verdict on a case 'absent'"),
        ("case_history", {"case": "absent"}, "no recorded run holds a case 'absent'"),
        ("case_history", {"case": SHORT, "last": 0}, "last must be at least 1"),
        ("explain", {"word": "absent.code"}, "absent.code"),
        ("culprits", {}, "case"),
    ],
)
def test_what_cannot_be_answered_is_an_error_with_a_sentence(recorded, tool, arguments, said):
    ((failed, text),) = asked(recorded, (tool, arguments))
    assert failed
    assert said in text
    assert "Traceback" not in text
