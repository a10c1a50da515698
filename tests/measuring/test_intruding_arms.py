"""A benchmark that leaves something running slows both arms alike, so nothing can be called unchanged; no torch."""

from __future__ import annotations

from tests.tiny_projects import facts, verdicts

ARMS = ("--baseline", "git:HEAD", "--candidate", "dir:.", "--no-progress")
SPINNER = """\
import subprocess
import sys

SPINNER = subprocess.Popen([sys.executable, "-c", "while True: pass"])
"""


def test_is_told_by_the_share_of_the_cpus_that_it_takes(project):
    work = project.path / "tiny_work.py"
    project.write("tiny_work.py", f"{SPINNER}\n{work.read_text()}")
    result = project.result("compare", "--threads", "1", *ARMS)
    for verdict in verdicts(result).values():
        assert verdict["outcome"] in {"inconclusive", "regressed"}
        if verdict["outcome"] == "inconclusive":
            seen = facts(verdict, "arm.intruded")
            shares = {intruder["subject"]["arm"]: intruder["values"]["cpu_share"] for intruder in seen}
            assert shares["candidate"] > 0.05
    events = (project.latest_run() / "events.jsonl").read_text()
    assert '"candidate_intrusion_ratio":0.' in events


def test_is_nothing_where_the_arms_sleep_while_they_wait(project):
    project.write("tiny_work.py", (project.path / "tiny_work.py").read_text() + "\n# other code, the same work\n")
    result = project.result("compare", "--threads", "1", *ARMS)
    assert not any(facts(verdict, "arm.intruded") for verdict in verdicts(result).values())
