"""pyperf: the suite measured once for each arm, then `pyperf compare_to`."""

from __future__ import annotations

import re

from tests.proof.gates_against_peers.costs import units
from tests.proof.gates_against_peers.making import BASE
from tests.proof.gates_against_peers.pinning import peer_environment, run
from tests.proof.gates_against_peers.places import SUITES_VENV, python_of
from tests.proof.gates_against_peers.tools.observation import Answer, Observation, Question
from tests.proof.gates_against_peers.variants import Variant

MIN_SPEED_PERCENT = 2
_SLOWER = re.compile(r"^\|\s*(?P<case>[\w.]+)\s*\|.*:\s*(?P<ratio>[\d.]+)x slower\s*\|", re.MULTILINE)


class Pyperf:
    """pyperf, as many processes as fit into the minutes; at least five."""

    name = "pyperf"
    rule = "compare_to --min-speed 2: Student's t on pooled values and 2 %"

    def can(self, variant: Variant) -> bool:
        """Everything that has two arms on this machine."""
        return not variant.stored

    def ask(self, question: Question) -> Observation:
        """Measure base, then the variant, then compare."""
        processes = units(self.name, minutes=question.minutes, least=5)
        python, seconds = str(python_of(SUITES_VENV)), 0.0
        base = peer_environment(question.cpus, allocator=question.allocator)
        for name, extra in ((BASE, ()), (question.variant.name, question.variant.environment)):
            tree = question.made.trees[name]
            merged = {**base, **dict(extra), "PYTHONPATH": str(tree)}
            environment = {key: value for key, value in merged.items() if value}
            arm = "a" if name == BASE else "b"
            done = run(
                [
                    *(python, "suites/pyperf_suite.py", "--quiet", "--processes", str(processes)),
                    *("--affinity", ",".join(map(str, question.cpus)), "--inherit-environ", ",".join(environment)),
                    *("-o", str(question.folder / f"{arm}.json")),
                ],
                cwd=tree,
                environment=environment,
                cpus=question.cpus,
                timeout_s=question.minutes * 120 + 600,
            )
            seconds += done.seconds
            if done.code != 0:
                return Observation(
                    answer=Answer.ERROR, flagged=(), seconds=seconds, detail={"reason": done.stderr[-800:]}
                )
        compared = run(
            [
                *(python, "-m", "pyperf", "compare_to", "a.json", "b.json", "--table", "--table-format", "md"),
                *("--min-speed", str(MIN_SPEED_PERCENT)),
            ],
            cwd=question.folder,
            environment=base,
            cpus=question.cpus,
            timeout_s=120,
        )
        seconds += compared.seconds
        if compared.code != 0:
            return Observation(
                answer=Answer.ERROR, flagged=(), seconds=seconds, detail={"reason": compared.stderr[-800:]}
            )
        found = slower_of(compared.stdout)
        return Observation(
            answer=Answer.RED if found else Answer.PASS,
            flagged=tuple(found),
            seconds=seconds,
            effects=found,
            detail={"processes": processes, "table": compared.stdout[-2000:]},
        )


def slower_of(table: str) -> dict[str, float]:
    """Cases that `compare_to --table` calls significantly slower, with the ratio it prints, less one."""
    return {
        match["case"]: float(match["ratio"]) - 1
        for match in _SLOWER.finditer(table)
        if not match["case"].startswith("Geometric")
    }
