"""A process that records one run after another, and says of each that it was acknowledged; started to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from perfguard.history.database import opened
from perfguard.history.recording import add_run
from tests.recorded_histories import SAMPLES, a_run


def main(url: str, first: int) -> None:
    """Record runs from a number on, for as long as the process lives."""
    with opened(url, Path()) as database:
        for number in range(first, first + 100_000):
            add_run(database, a_run(number), samples=SAMPLES)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
