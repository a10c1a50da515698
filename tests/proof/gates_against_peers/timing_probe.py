"""Times cases of a victim in this process alone: `python timing_probe.py TREE SAMPLES CASE…` prints JSON.

Runs in the interpreter under test, so it imports nothing of the proof or of perfguard.
"""

import json
import sys
import time


def main(tree, samples, names):
    """Wall and CPU seconds of an iteration, `samples` of each, and the result of the first call."""
    sys.path.insert(0, tree)
    import torch
    import victim

    found = {}
    for name in names:
        torch.manual_seed(1)
        call = getattr(victim, name)()
        result = float(call().double().mean())
        for _ in range(3):
            call()
        started = time.perf_counter()
        call()
        iterations = max(1, int(0.03 / (time.perf_counter() - started)))
        wall, cpu = [], []
        for _ in range(int(samples)):
            before = time.perf_counter(), time.process_time()
            for _ in range(iterations):
                call()
            wall.append((time.perf_counter() - before[0]) / iterations)
            cpu.append((time.process_time() - before[1]) / iterations)
        found[name] = {"wall_s": wall, "cpu_s": cpu, "result": result}
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3], sys.argv[3:])
