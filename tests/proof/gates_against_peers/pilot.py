"""What a gate of each peer costs: two short gates on identical arms, at two settings of the tool's knob."""

from __future__ import annotations

import shutil

from tests.proof.gates_against_peers import costs
from tests.proof.gates_against_peers.making import Made
from tests.proof.gates_against_peers.pinning import measured_cpus
from tests.proof.gates_against_peers.places import RUNS
from tests.proof.gates_against_peers.tools import TOOLS
from tests.proof.gates_against_peers.tools.observation import Answer, Question
from tests.proof.gates_against_peers.variants import IDENTICAL

_SETTINGS = {"pyperf": (5, 7), "asv-rounds": (4, 4, 6), "pytest-benchmark": (1, 3)}
"""The last two give the line; asv's first gate also makes its environment, which later ones find ready."""


def fly(made: Made, *, allocator: str, say: object = print) -> None:
    """Time the tools that have a knob and write the lines down.

    Raises:
        SystemExit: A tool did not come to an answer.
    """
    lines: dict[str, dict[str, float]] = {}
    for tool, settings in _SETTINGS.items():
        points = []
        for setting in settings:
            costs.write({**lines, tool: {"fixed_s": 0.0, "unit_s": 60.0}})  # one minute a unit: minutes are units
            folder = RUNS / f"pilot-{tool}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            observation = TOOLS[tool].ask(
                Question(
                    variant=IDENTICAL,
                    made=made,
                    minutes=setting,
                    cpus=measured_cpus(1),
                    allocator=allocator,
                    folder=folder,
                    seed=1,
                )
            )
            if observation.answer is Answer.ERROR:
                raise SystemExit(f"{tool} did not come to an answer: {observation.detail.get('reason')}")
            points.append((setting, observation.seconds))
            say(f"{tool} at {setting}: {observation.seconds:.0f} s")
        lines[tool] = costs.line_through(*points[-2:])
    costs.write(lines)
