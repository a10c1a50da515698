"""The pace of recorded gates: how many blocks a gate of some length holds, and how long some blocks take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perfguard.records.calibration import AAGate
from perfguard.records.pace import CasePace, Pace
from perfguard.stats.survival import survival


def pace_of(gates: Sequence[AAGate]) -> Pace:
    """The typical pace of gates whose arms were the same.

    What single cases take is known where any gate tells; gates that were recorded before that was kept tell only when
    cases left.
    """
    if not gates:
        return Pace(block_s=math.nan, overhead_s=math.nan)
    starts_s = [gate.startup_s for gate in gates if gate.startup_s is not None]
    case_ids = sorted({case_id for gate in gates for case_id in gate.cases})
    cases = {case_id: _case_pace(case_id, gates) for case_id in case_ids}
    is_known = bool(starts_s) and all(case is not None for case in cases.values())
    startup_s = statistics.median(starts_s) if is_known else math.nan
    # A median of sums is no sum of medians: where single cases are known, a block is what they add up to.
    whole_s = startup_s + sum(case.wall_s for case in cases.values() if case is not None)
    return Pace(
        block_s=whole_s if is_known else statistics.median(gate.block_s for gate in gates),
        overhead_s=statistics.median(gate.overhead_s for gate in gates),
        startup_s=startup_s,
        cases={case_id: case for case_id, case in cases.items() if case is not None} if is_known else {},
    )


def _case_pace(case_id: str, gates: Sequence[AAGate]) -> CasePace | None:
    """None where no gate tells what the case takes."""
    known = [(gate, gate.cases[case_id]) for gate in gates if case_id in gate.cases]
    walls_s = [sample.wall_s for _, sample in known if sample.wall_s is not None]
    if not walls_s:
        return None
    blocks = [(sample.blocks or len(sample.block_log_ratios), gate.blocks) for gate, sample in known]
    # What was measured in the last block may have been about to leave or not: its gate does not tell.
    stays = survival([(measured, measured < of_gate) for measured, of_gate in blocks])
    return CasePace(wall_s=statistics.median(walls_s), stays=stays)
