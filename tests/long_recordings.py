"""Recordings as long as one likes, for measuring what it costs to read them.

`python -m tests.long_recordings FOLDER --cases 500 --hours 8` writes one; nothing in it was measured.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import BinaryIO

from perfguard.recordings import encode_event
from perfguard.records import events as happened
from perfguard.records.run import Arm

STARTED = 1_790_000_000.0
SAMPLES = 12


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._random = random.Random(5)
        self.seq = 0
        self.now_s = 0.0

    def emit(self, event: happened.Event) -> None:
        self._file.write(encode_event(event, seq=self.seq, t_wall=STARTED + self.now_s, t_mono=self.now_s))
        self.seq += 1

    def samples(self, block: int, case_id: str, sample_s: float) -> None:
        """All samples of a case, arms in turns, from one encoded line: encoding each would take minutes."""
        timed = happened.SampleTimed(
            block=block, case_id=case_id, arm=Arm.BASELINE, index=0, warmup=False, value_s=0.0, cpu_s=0.0,
            minor_faults=0, involuntary_switches=0, iterations=1,
        )  # fmt: skip
        line = encode_event(timed, seq=0, t_wall=0.0, t_mono=0.0)
        for key in (b'"seq":0', b'"t_mono":0.0', b'"t_wall":0.0', b'"index":0', b'"value_s":0.0', b'"arm":"baseline"'):
            assert key in line
        line = line.replace(b"%", b"%%").replace(b'"seq":0', b'"seq":%d').replace(b'"t_mono":0.0', b'"t_mono":%.6f')
        line = line.replace(b'"t_wall":0.0', b'"t_wall":%.6f').replace(b'"arm":"baseline"', b'"arm":"%s"')
        line = line.replace(b'"index":0', b'"index":%d').replace(b'"value_s":0.0', b'"value_s":%.9f')
        for index in range(SAMPLES):
            for arm in (b"baseline", b"candidate"):
                self.now_s += sample_s
                value_s = sample_s * self._random.lognormvariate(0.0, 0.01)
                self._file.write(line % (self.seq, self.now_s, STARTED + self.now_s, arm, index, value_s))
                self.seq += 1


def write_long_run(folder: Path, *, cases: int, hours: float, sample_s: float = 0.05) -> int:
    """Write a paired run that goes on for so long; gives the number of its events.

    Args:
        folder: Where to; made where it is missing.
        cases: Cases of the run, all measured in each block.
        hours: Length by the events' clock.
        slice_s: Length of a sample, which decides how many events an hour has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    case_ids = tuple(f"kernel.made_up[number={number},dtype=bf16]" for number in range(cases))
    with (folder / "events.jsonl").open("wb") as file:
        out = _Writer(file)
        out.emit(
            happened.RunStarted(
                run_id=folder.name, schema=happened.EVENT_SCHEMA, mode="paired", suite="long", case_ids=case_ids,
                command=("perfguard", "compare"), budget_s=hours * 3600.0,
            )
        )  # fmt: skip
        block = 0
        while out.now_s < hours * 3600.0:
            began_s = out.now_s
            out.emit(happened.BlockStarted(block=block, hash_seed=1, data_seed=1, case_ids=case_ids))
            for case_id in case_ids:
                out.samples(block, case_id, sample_s)
                out.emit(happened.CaseFinished(block=block, case_id=case_id, baseline_digest=1.0, candidate_digest=1.0))
                out.emit(happened.ControlTimed(block=block, value_s=0.002))
            out.emit(
                happened.BlockFinished(
                    block=block, started_at=STARTED + began_s, duration_s=out.now_s - began_s, steal_ratio=0.0,
                    involuntary_switches=0,
                )
            )  # fmt: skip
            block += 1
        return out.seq


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--sample-s", type=float, default=0.05)
    asked = parser.parse_args()
    print(write_long_run(asked.folder, cases=asked.cases, hours=asked.hours, sample_s=asked.sample_s))  # noqa: T201
