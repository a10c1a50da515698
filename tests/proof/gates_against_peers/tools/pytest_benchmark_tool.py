"""pytest-benchmark: `--benchmark-save`, then `--benchmark-compare-fail`."""

from __future__ import annotations

import re

from tests.proof.gates_against_peers.costs import units
from tests.proof.gates_against_peers.making import BASE
from tests.proof.gates_against_peers.pinning import peer_environment, run
from tests.proof.gates_against_peers.places import SUITES_VENV, python_of
from tests.proof.gates_against_peers.tools.observation import Answer, Observation, Question
from tests.proof.gates_against_peers.variants import Variant

FAIL = "median:2%"
_REGRESSED = re.compile(
    r"test_case\[(?P<case>\w+)\] \([^)]*\) - Field '\w+' has failed PercentageRegressionCheck: (?P<percent>[-\d.]+)"
)


class PytestBenchmark:
    """pytest-benchmark; `--benchmark-max-time` fills the minutes."""

    name = "pytest-benchmark"
    rule = "--benchmark-compare-fail=median:2%, one process an arm"

    def can(self, variant: Variant) -> bool:
        """Everything that has two arms on this machine."""
        return not variant.stored

    def ask(self, question: Question) -> Observation:
        """Save base, then run the variant against it."""
        max_time_s = units(self.name, minutes=question.minutes, least=1)
        storage = f"file://{question.folder}"
        base = peer_environment(question.cpus, allocator=question.allocator)
        arms = (
            (BASE, (), ("--benchmark-save=base",)),
            (
                question.variant.name,
                question.variant.environment,
                ("--benchmark-compare=0001", f"--benchmark-compare-fail={FAIL}"),
            ),
        )
        seconds = 0.0
        for name, extra, options in arms:
            tree = question.made.trees[name]
            merged = {**base, **dict(extra), "PYTHONPATH": str(tree)}
            done = run(
                [
                    *(str(python_of(SUITES_VENV)), "-m", "pytest", "suites/pytest_suite.py", "-q", "-p"),
                    *("no:cacheprovider", f"--rootdir={tree}", f"--benchmark-storage={storage}"),
                    *(f"--benchmark-max-time={max_time_s}", *options),
                ],
                cwd=tree,
                environment={key: value for key, value in merged.items() if value},
                cpus=question.cpus,
                timeout_s=question.minutes * 120 + 600,
            )
            seconds += done.seconds
            if done.code != 0 and "Performance has regressed" not in done.stdout + done.stderr:
                reason = (done.stdout + done.stderr)[-800:]
                return Observation(answer=Answer.ERROR, flagged=(), seconds=seconds, detail={"reason": reason})
        found = regressed_of(done.stdout + done.stderr)
        return Observation(
            answer=Answer.RED if done.code else Answer.PASS,
            flagged=tuple(found),
            seconds=seconds,
            effects=found,
            detail={"max_time_s": max_time_s, "exit_code": done.code},
        )


def regressed_of(text: str) -> dict[str, float]:
    """Cases that failed the comparison, with their ratio less one."""
    return {match["case"]: float(match["percent"]) / 100 for match in _REGRESSED.finditer(text)}
