"""One trial: both arms of the victim profiled as a gate does for a red case, and what was named."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from perfguard.config import load_config
from perfguard.gate.paired.explain import BOTH, GATE_SIZE
from perfguard.profile.changes.attribution import attribute
from perfguard.profile.changes.op_counts import classify
from perfguard.profile.runs.profiling import findings_of, isa_of, run_profiles
from perfguard.records.run import Arm
from perfguard.records.steps.ops import Attribution
from perfguard.report.messages.catalog import describe
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.measuring import start_arms
from perfguard.runner.session import Request, Session, open_session
from perfguard.runner.suites import load_catalog, selected_cases
from tests.proof.culprits_of_injections.injections import Injection

VICTIM = Path(__file__).with_name("victim")
SPIN_RATIO = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one trial gave."""

    injection: str
    """Its name."""
    machine_id: str
    """Where."""
    seconds: float
    """Wall seconds."""
    step_s: float
    """Step of the baseline."""
    effect: float
    """Difference of the steps, as a ratio."""
    lower: float
    """Lower end of its interval."""
    upper: float
    """Upper end."""
    unexplained: float
    """Part of the longer step that the identity leaves unexplained."""
    unexplained_lower: float
    """Lower end of its interval."""
    unexplained_upper: float
    """Upper end."""
    pairs: int
    """Pairs of processes that it rests on."""
    overhead: float
    """How much longer a profiled step of the baseline takes."""
    first: str | None
    """Headline of the first culprit; None where none was named."""
    is_right: bool
    """Whether it is the one that was injected; where nothing was, whether nothing was named."""
    place: int | None
    """Place of the right one among the culprits, from 1; None where it is not among them."""


def project(folder: Path) -> Path:
    """A copy of the victim to run in, so that runs leave nothing in the repository."""
    place = folder / "victim"
    if not place.exists():
        shutil.copytree(VICTIM, place, ignore=shutil.ignore_patterns("__pycache__", ".perfguard"))
    return place


def step_seconds(place: Path) -> float:
    """Seconds of the victim's step, to know how long to spin."""
    found, _, folder = _attributed(place, "", "", seed=1)
    shutil.rmtree(folder, ignore_errors=True)
    return found.balance.baseline_s


def run_trial(place: Path, injection: Injection, *, spin_s: float, seed: int) -> Trial:
    """Profile the victim against itself with a fault, and look at what is named first."""
    spin = f",VICTIM_SPIN_S={spin_s:.6f}" if injection.spins else ""
    started = time.monotonic()
    found, machine_id, folder = _attributed(place, injection.baseline, injection.candidate + spin, seed=seed)
    places = [number for number, culprit in enumerate(found.culprits, 1) if injection.names(culprit)]
    balance = found.balance
    longer_s = max(balance.baseline_s, balance.candidate_s)
    is_right = places[:1] == [1] if injection.name != "nothing" else not found.culprits
    if is_right:
        shutil.rmtree(folder, ignore_errors=True)  # 20 MB of traces a trial; those of wrong ones stay for a look
    return Trial(
        injection=injection.name,
        machine_id=machine_id,
        seconds=time.monotonic() - started,
        step_s=balance.baseline_s,
        effect=balance.delta_s / balance.baseline_s,
        lower=balance.lower_s / balance.baseline_s,
        upper=balance.upper_s / balance.baseline_s,
        unexplained=balance.unexplained_s / longer_s,
        unexplained_lower=balance.unexplained_lower_s / longer_s,
        unexplained_upper=balance.unexplained_upper_s / longer_s,
        pairs=found.processes,
        overhead=balance.overhead_ratio,
        first=describe(found.culprits[0].fact) if found.culprits else None,
        is_right=is_right,
        place=places[0] if places else None,
    )


def as_line(trial: Trial) -> dict[str, object]:
    """A trial for the journal."""
    return asdict(trial)


def _attributed(place: Path, common: str, candidate: str, *, seed: int) -> tuple[Attribution, str, Path]:
    loaded = load_config(place, {}, {"seed": seed})
    catalog = load_catalog(loaded)
    cases = selected_cases(catalog, suite="victim", patterns=())
    request = Request(
        command="compare", arguments=("compare",), loaded=loaded, suite="victim", cases=cases, budget_s=600.0
    )
    with open_session(request, mode="profile") as session:
        found = _profiled(session, common, candidate)
        machine_id = session.fingerprint.machine_id
        folder = session.folder.path
    return found, machine_id, folder


def _profiled(session: Session, common: str, candidate: str) -> Attribution:
    def arm(*variables: str) -> str:
        given = ",".join(text for text in variables if text)
        return f"dir:.+env:{given}" if given else "dir:."

    specs = {
        Arm.BASELINE: parse_arm(arm(common, "VICTIM_SIDE=a")),
        Arm.CANDIDATE: parse_arm(arm(common, candidate, "VICTIM_SIDE=b")),
    }
    starter, _ = start_arms(session, specs)
    (case,) = session.request.cases
    found = run_profiles(session, starter, [case], BOTH, GATE_SIZE)
    if session.interrupts.asked:  # pairs may be missing, so this is no trial
        raise KeyboardInterrupt
    if case.id in found.problems:
        raise SystemExit(f"the victim cannot be profiled: {found.problems[case.id].reason}")
    isa_class = isa_of(session.request.fingerprint)
    before, after = (findings_of(found, case, role, isa_class) for role in BOTH)
    changes = classify(before.joined.op_counts, after.joined.op_counts) if before.joined and after.joined else ()
    return attribute(case.id, before.profile, after.profile, changes)
