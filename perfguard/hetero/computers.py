"""Computers of the paper as speeds of workers, estimated from peak rates of their parts; for simulations alone.

Training in double precision as in the authors' code: an example costs 6 operations a parameter (2 forward, 4
backward), and an update of one example reads and writes the model three times, so that it is bound by memory on a CPU
thread. Rates are data-sheet values, times a usual efficiency; nothing here was measured on these machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfguard.hetero.simulator import Speed

_BYTES = 8  # Of a parameter
_OPS_OF_AN_EXAMPLE = 6  # Per parameter
_PASSES_OF_AN_UPDATE = 3  # Over the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Computer:
    """A computer with CPU threads and one GPU."""

    doc: str
    threads: int  # Hogwild workers
    thread_ops: float  # Operations a second of a CPU thread
    thread_bytes: float  # Bytes a second that a CPU thread reads and writes while all do
    gpu_ops: float  # Operations a second of the GPU on a large batch
    link_bytes: float  # Bytes a second between memory and the GPU
    launch_s: float = 1e-3  # Seconds of a range on the GPU, whatever its size

    def speeds(self, parameters: int) -> Mapping[str, Speed]:
        """Speeds of a CPU worker and of the GPU for a model of so many parameters, by the presets' groups."""
        work = _OPS_OF_AN_EXAMPLE * parameters
        size = _BYTES * parameters
        cpu = Speed(example_s=work / self.thread_ops, update_s=_PASSES_OF_AN_UPDATE * size / self.thread_bytes)
        gpu = Speed(example_s=work / self.gpu_ops, update_s=self.launch_s, transfer_s=2 * size / self.link_bytes)
        return {"cpu": cpu, "large": gpu}


COMPUTERS: Mapping[str, Computer] = {
    "uc-merced": Computer(
        doc="two Xeon E5-2660 v4 (48 of 56 threads train) and one GPU of a Tesla K80",
        threads=48,
        thread_ops=8e9,
        thread_bytes=2.8e9,
        gpu_ops=0.65e12,
        link_bytes=10e9,
    ),
    "aws-p3": Computer(
        doc="p3.16xlarge: 64 virtual CPUs of Xeon E5-2686 v4 (48 train) and one Tesla V100",
        threads=48,
        thread_ops=8e9,
        thread_bytes=2.8e9,
        gpu_ops=5.5e12,
        link_bytes=10e9,
    ),
}
"""The two computers of arXiv:2004.08771, by name."""
