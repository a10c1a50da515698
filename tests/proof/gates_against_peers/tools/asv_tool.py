"""asv: `asv continuous`, with its defaults and as careful users run it."""

from __future__ import annotations

import re
import shutil

from tests.proof.gates_against_peers.costs import units
from tests.proof.gates_against_peers.making import BASE, changes_sources
from tests.proof.gates_against_peers.pinning import peer_environment, run
from tests.proof.gates_against_peers.places import ASV_PLACE, ASV_VENV
from tests.proof.gates_against_peers.tools.observation import Answer, Observation, Question
from tests.proof.gates_against_peers.variants import Kind, Variant

_ROW = re.compile(
    r"^\|\s*\+\s*\|[^|]*\|[^|]*\|\s*(?P<ratio>[\d.]+|n/a)\s*\|\s*[\w.]*?(?P<case>\w+)\.time_case", re.MULTILINE
)
_FAILED = re.compile(r"\.time_case\s+failed\b")
_CHANGED = "SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY"
_UNCHANGED = "BENCHMARKS NOT SIGNIFICANTLY CHANGED"
_WORSE = "PERFORMANCE DECREASED"


class Asv:
    """`asv continuous` with its defaults: a factor of 1.1. Its time is its own; it has no budget."""

    name = "asv"
    rule = "asv continuous, factor 1.1"
    least_rounds: int | None = None

    def can(self, variant: Variant) -> bool:
        """asv compares commits: what is not in the sources cannot be asked."""
        return not variant.stored and (variant.kind is Kind.IDENTICAL or changes_sources(variant))

    def ask(self, question: Question) -> Observation:
        """Run `asv continuous BASE VARIANT`; asv installs each commit anew in every round."""
        shutil.rmtree(ASV_PLACE / "results", ignore_errors=True)
        environment = peer_environment(question.cpus, allocator=question.allocator)
        # asv keeps the machine's description in the home directory; the user's own stays untouched.
        environment["HOME"] = str(ASV_PLACE)
        environment["PATH"] = f"{ASV_VENV / 'bin'}:{environment.get('PATH', '')}"
        asv = str(ASV_VENV / "bin" / "asv")
        run([asv, "machine", "--yes"], cwd=ASV_PLACE, environment=environment, cpus=question.cpus, timeout_s=120)
        options = self.options(question)
        done = run(
            [asv, "continuous", *options, "--show-stderr", BASE, question.variant.name],
            cwd=ASV_PLACE,
            environment=environment,
            cpus=question.cpus,
            timeout_s=question.minutes * 180 + 1200,
        )
        text = done.stdout + done.stderr
        if (_CHANGED not in text and _UNCHANGED not in text) or _FAILED.search(text):
            return Observation(
                answer=Answer.ERROR,
                flagged=(),
                seconds=done.seconds,
                detail={"exit_code": done.code, "reason": text[-1500:]},
            )
        found = worse_of(text)
        return Observation(
            answer=Answer.RED if _WORSE in text else Answer.PASS,
            flagged=tuple(found),
            seconds=done.seconds,
            effects=found,
            detail={"exit_code": done.code, "options": list(options), "table": text[-2500:]},
        )

    def options(self, question: Question) -> tuple[str, ...]:
        """What is asked for beside the commits."""
        return ()


class AsvRounds(Asv):
    """As careful users run it: a factor of 1.02, interleaved rounds, as many as fit into the minutes; at least four."""

    name = "asv-rounds"
    rule = "asv continuous -f 1.02 --interleave-rounds -a rounds=4 (or more)"

    def options(self, question: Question) -> tuple[str, ...]:
        """Factor and rounds."""
        rounds = units(self.name, minutes=question.minutes, least=4)
        return ("-f", "1.02", "--interleave-rounds", "-a", f"rounds={rounds}")


def worse_of(text: str) -> dict[str, float]:
    """Cases in the rows marked `+`, with their ratio less one."""
    return {
        match["case"]: float(match["ratio"]) - 1 if match["ratio"] != "n/a" else float("inf")
        for match in _ROW.finditer(text)
    }
