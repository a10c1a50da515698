"""The tools under test, each with its own commands: one module a tool, all answering with an `Observation`."""

from __future__ import annotations

from tests.proof.gates_against_peers.tools.asv_tool import Asv, AsvRounds
from tests.proof.gates_against_peers.tools.observation import Tool
from tests.proof.gates_against_peers.tools.perfguard_tool import Perfguard
from tests.proof.gates_against_peers.tools.pyperf_tool import Pyperf
from tests.proof.gates_against_peers.tools.pytest_benchmark_tool import PytestBenchmark

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (Perfguard(), Pyperf(), Asv(), AsvRounds(), PytestBenchmark())}
"""By name, in the order of the tables."""
