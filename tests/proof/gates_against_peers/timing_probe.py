"""Times cases of a victim in this process alone; prints JSON, one document a line.

`python timing_probe.py TREE SAMPLES CASE…` takes all samples and prints one document. With `ask` for SAMPLES it prints
a line once a case is set up, then a sample for each line `sample` on its input, and goes on to the next case at `next`.

Runs in the interpreter under test, so it imports nothing of the proof or of perfguard.
"""

import json
import sys
import time

_SAMPLE_S = 0.03


class Timed:
    """A case that is set up, and how many iterations make a sample."""

    def __init__(self, call):
        self.result = float(call().double().mean())
        for _ in range(3):
            call()
        started = time.perf_counter()
        call()
        self._call = call
        self._iterations = max(1, int(_SAMPLE_S / (time.perf_counter() - started)))

    def sample(self):
        """Wall and CPU seconds of an iteration."""
        before = time.perf_counter(), time.process_time()
        for _ in range(self._iterations):
            self._call()
        return {
            "wall_s": (time.perf_counter() - before[0]) / self._iterations,
            "cpu_s": (time.process_time() - before[1]) / self._iterations,
        }


def main(tree, samples, names):
    """Wall and CPU seconds of an iteration, and the result of the first call."""
    sys.path.insert(0, tree)
    import torch
    import victim

    found = {}
    for name in names:
        torch.manual_seed(1)
        timed = Timed(getattr(victim, name)())
        if samples == "ask":
            say({"result": timed.result})
            while (asked := sys.stdin.readline().strip()) == "sample":
                say(timed.sample())
            if asked != "next":
                return
        else:
            taken = [timed.sample() for _ in range(int(samples))]
            clocks = {clock: [each[clock] for each in taken] for clock in ("wall_s", "cpu_s")}
            found[name] = {**clocks, "result": timed.result}
    if samples != "ask":
        say(found)


def say(document):
    """One line."""
    print(json.dumps(document), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3], sys.argv[3:])
