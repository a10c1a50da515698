"""Live gates: every tool with its own commands, the same CPUs, the same minutes, in a balanced order."""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tests.proof.gates_against_peers.journal import Journal, Row, within
from tests.proof.gates_against_peers.machine import commit, moment
from tests.proof.gates_against_peers.making import Made
from tests.proof.gates_against_peers.neighbour import noisy
from tests.proof.gates_against_peers.pinning import measured_cpus
from tests.proof.gates_against_peers.places import LIVE_JOURNAL, REPOSITORY, RUNS
from tests.proof.gates_against_peers.tools import TOOLS
from tests.proof.gates_against_peers.tools.observation import Answer, Observation, Question, Tool
from tests.proof.gates_against_peers.variants import Variant

REGIMES = ("idle", "neighbour")
_NEIGHBOUR_DUTY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which gates, and how."""

    tools: tuple[str, ...]
    """Names of the tools."""
    variants: tuple[Variant, ...]
    """Candidates."""
    regimes: tuple[str, ...]
    """`idle`, `neighbour`."""
    repetitions: int
    """Gates of each combination."""
    gate_minutes: float
    """What each gate may take."""
    allocator: str
    """Of the peers: `pinned` or `default`."""
    seed: int
    """Of the order, of the neighbour and of the tools that take one."""
    neighbour_cpu: str = "same"
    """Where the neighbour works: on the `same` CPU or on the `other` one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate to come."""

    tool: str
    """Who decides."""
    variant: Variant
    """About what."""
    regime: str
    """In which company."""
    repetition: int
    """Which of several, from 0."""
    key: str
    """Its name in the journal."""


def planned(plan: Plan) -> Iterator[Gate]:
    """All gates in their order: variants shuffled anew for each repetition, tools in the rows of a Latin square.

    So that after any number of rows each tool has stood in each place about equally often, and slow changes of the
    machine fall on all of them alike.
    """
    draw = random.Random(plan.seed)
    square = latin_square(plan.tools, draw)
    row = 0
    for repetition in range(plan.repetitions):
        pairs = [(variant, regime) for variant in plan.variants for regime in plan.regimes]
        draw.shuffle(pairs)
        for variant, regime in pairs:
            for tool in square[row % len(square)]:
                if TOOLS[tool].can(variant):
                    yield Gate(
                        tool=tool,
                        variant=variant,
                        regime=regime,
                        repetition=repetition,
                        key=f"{tool}/{variant.name}/{regime}/{plan.allocator}/{plan.gate_minutes:g}min/{repetition}",
                    )
            row += 1


def latin_square(names: Sequence[str], draw: random.Random) -> list[list[str]]:
    """Rows in which every name stands once in every place, rows and columns shuffled."""
    order = list(names)
    draw.shuffle(order)
    rows = [[order[(row + place) % len(order)] for place in range(len(order))] for row in range(len(order))]
    draw.shuffle(rows)
    return rows


def measure(plan: Plan, made: Made, *, minutes: float | None, done: frozenset[str], say: object = print) -> int:
    """Run the gates whose keys are not done and write each down at once; gives how many ran."""
    journal = Journal(LIVE_JOURNAL)
    ran = 0
    for gate in within((g for g in planned(plan) if g.key not in done), minutes=minutes):
        row = run_gate(gate, plan, made)
        journal.append(row)
        ran += 1
        say(f"{gate.key}: {row['answer']} {', '.join(row['flagged']) or '-'} in {row['seconds']:.0f} s")
    return ran


def run_gate(gate: Gate, plan: Plan, made: Made) -> Row:
    """One gate, alone or in company; whatever goes wrong is an answer of its own."""
    tool = TOOLS[gate.tool]
    cpus = measured_cpus(gate.variant.cpus)
    seed = random.Random(f"{plan.seed}/{gate.key}").randrange(2**31)
    folder = RUNS / gate.key.replace("/", "_")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    question = Question(
        variant=gate.variant,
        made=made,
        minutes=plan.gate_minutes,
        cpus=cpus,
        allocator=plan.allocator,
        folder=folder,
        seed=seed,
    )
    start = moment()
    company = neighbour_cpu(plan.neighbour_cpu, cpus) if gate.regime == "neighbour" else None
    longest_s = plan.gate_minutes * 180 + 1800
    with noisy(company, seconds=longest_s, seed=seed, duty=_NEIGHBOUR_DUTY, cwd=REPOSITORY):
        observation = _asked(tool, question)
    shutil.rmtree(folder, ignore_errors=True)
    variant = gate.variant
    return {
        "key": gate.key,
        "tool": gate.tool,
        "variant": variant.name,
        "kind": variant.kind.value,
        "effect": variant.effect,
        "expected": list(variant.cases),
        "regime": gate.regime,
        "neighbour_cpu": company,
        "allocator": plan.allocator,
        "gate_minutes": plan.gate_minutes,
        "repetition": gate.repetition,
        "cpus": list(cpus),
        "commit": commit(),
        **start,
        "load_after": moment()["load_1min"],
        **asdict(observation),
        "answer": observation.answer.value,
    }


def neighbour_cpu(where: str, cpus: Sequence[int]) -> int:
    """The CPU on which the neighbour works; the measured one where there is no other."""
    others = [cpu for cpu in measured_cpus(1024) if cpu not in cpus]
    return others[0] if where == "other" and others else cpus[0]


def _asked(tool: Tool, question: Question) -> Observation:
    try:
        return tool.ask(question)
    except Exception:  # noqa: BLE001 - a tool may fail in any way; the other gates go on
        return Observation(
            answer=Answer.ERROR, flagged=(), seconds=0.0, detail={"reason": traceback.format_exc(limit=-3)}
        )
