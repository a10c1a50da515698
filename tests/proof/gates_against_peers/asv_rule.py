"""asv's own statistics, run by the interpreter that has asv: pairs of samples in, answers out, one JSON line each.

`[[seconds of the baseline], [seconds of the candidate]]` gives `{"ratio": …, "different": …}`.
"""

import json
import sys

from asv import _stats
from asv_runner.statistics import compute_stats


def main():
    """Answer until the input ends."""
    for line in sys.stdin:
        baseline, candidate = json.loads(line)
        (before, stats_a), (after, stats_b) = compute_stats(baseline, 1), compute_stats(candidate, 1)
        # `asv continuous` discards the samples unless --record-samples is given, so it decides by intervals.
        answer = {"ratio": after / before, "different": _stats.is_different(None, None, stats_a, stats_b)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
