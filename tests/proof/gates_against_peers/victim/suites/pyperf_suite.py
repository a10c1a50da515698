"""The victim's cases for pyperf: `python pyperf_suite.py -o result.json`."""

import pyperf
import torch
import victim


def _time(loops, factory):
    torch.manual_seed(1)
    call = factory()
    call()
    started = pyperf.perf_counter()
    for _ in range(loops):
        call()
    return pyperf.perf_counter() - started


if __name__ == "__main__":
    runner = pyperf.Runner()
    for factory in victim.CASES:
        runner.bench_time_func(factory.__name__, _time, factory)
