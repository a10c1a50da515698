"""Table 2: throughput of one training step over threads and ranks, every cell in the same fresh processes' rounds."""

from __future__ import annotations

from msgspec.structs import replace

from perfguard.errors import ExitCode, InterruptedRunError, MeasurementError, UsageError
from perfguard.gate.stored.rounds import run_arm
from perfguard.host.placement import sockets_of
from perfguard.records.ranks import Parallel
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.scaling import Axes, spread_request
from perfguard.runner.session import Request, choose_cpus
from perfguard.study.evidence import RankCell, Scaling
from perfguard.study.measured import Measured

_ROUNDS = 4  # Of every cell: how processes differ is a cell's uncertainty


def measure_scaling(request: Request) -> Measured:
    """Measure all cells that fit on the machine, in powers of two, with DistributedDataParallel.

    Raises:
        InterruptedRunError: The user ended it.
        MeasurementError: There is one CPU only, or a step cannot be measured.
    """
    request, cpus = _on_all_cpus(request)
    sockets = sockets_of(request.fingerprint, cpus)
    largest = max(sum(map(len, cores)) for cores in sockets)
    try:
        asked = spread_request(request, Axes(ranks=_powers(sum(map(len, sockets))), threads=_powers(largest)))
    except UsageError as error:
        raise MeasurementError(str(error)) from error
    result = run_arm(asked, parse_arm("dir:."), rounds=_ROUNDS)
    if result.exit_code == ExitCode.INTERRUPTED:
        raise InterruptedRunError(f"interrupted while ranks were measured; see {result.folder}")
    measured = {case.case_id: case for case in result.measured}
    cells = tuple(
        RankCell(
            threads=cell.threads,
            ranks=cell.ranks,
            throughput_per_s=cell.examples_per_s,
            rounds=measured[cell.case_id].rounds,
            sd_ratio=measured[cell.case_id].between_sd_ratio,
        )
        for cell in result.scaling
        if cell.examples_per_s is not None and cell.parallel != Parallel.PLAIN.value
    )
    if not cells:
        raise MeasurementError(f"no number of ranks could be measured; see {result.folder}")
    torch = next((arm.torch for arm in result.arms.values() if arm.torch), None)
    value = Scaling(case_id=result.scaling[0].step, cells=cells)
    return Measured(value=value, torch=torch or "unknown", cpus=result.cpus)


def _on_all_cpus(request: Request) -> tuple[Request, tuple[int, ...]]:
    """The request on all CPUs, however few the other items use; of two CPUs none is left to the system."""
    loaded = request.loaded
    for threads in (None, 2):
        request = replace(request, loaded=replace(loaded, config=replace(loaded.config, threads=threads)))
        try:
            cpus = choose_cpus(request.loaded, request.fingerprint).cpus
        except UsageError:
            break
        if len(cpus) > 1:
            return request, cpus
    raise MeasurementError("ranks need two CPUs or more; this machine offers one")


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << exponent for exponent in range(most.bit_length()))
