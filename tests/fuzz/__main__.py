"""`python -m tests.fuzz`: damaged input for each reader, for as long as asked; findings are kept and named.

A finding is an exception that the reader does not document, more than ten seconds, or more than a gigabyte. Its input
is written to `tests/fuzz/corpus/TARGET/`, where a test reads it again.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from perfguard.errors import PerfguardError
from tests.fuzz.mutations import damaged
from tests.fuzz.targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
_LONGEST_S = 10
_MOST_BYTES = 1 << 30
_SLICE_S = 5.0


class _HangError(Exception):
    """A reader took too long."""


@contextmanager
def limited() -> Iterator[None]:
    """Ten seconds, and a gigabyte beyond what the process has."""

    def stop(_: int, __: FrameType | None) -> None:
        raise _HangError

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MOST_BYTES, before[1]))
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(_LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, before)


def finding(target: Target, content: bytes, place: Path) -> str | None:
    """What is wrong with how a reader takes some bytes; None where it reads or refuses them."""
    try:
        with limited():
            target.read(content, place)
    except (PerfguardError, *target.also) as error:
        said = str(error)
        return f"a refusal of {len(said)} characters" if len(said) > 4_100 else None
    except _HangError:
        return f"more than {_LONGEST_S} s"
    except MemoryError:
        return "more than a gigabyte"
    except Exception:  # noqa: BLE001 - this is what is looked for
        return traceback.format_exc(limit=-3)
    return None


def inputs(target: Target, seed: str) -> Iterator[bytes]:
    """Endless damaged examples; the same for the same seed."""
    draw = random.Random(seed)
    while True:
        yield damaged(draw.choice(target.examples), draw)


def main() -> None:
    """Read damaged input, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of all targets together")
    parser.add_argument("--target", choices=[*TARGETS], action="append", help="these alone")
    parser.add_argument("--seed", default=str(time.time_ns()), help="of the damage; default: the time")
    options = parser.parse_args()
    names = options.target or [*TARGETS]
    made = {name: inputs(TARGETS[name], f"{options.seed}:{name}") for name in names}
    counts, found = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    until = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < until:
            for name in names:
                end = min(until, time.monotonic() + _SLICE_S)
                while time.monotonic() < end:
                    content = next(made[name])
                    counts[name] += 1
                    problem = finding(TARGETS[name], content, Path(folder))
                    if problem is not None:
                        found[name] += 1
                        _keep(name, content, problem)
    print(f"seed {options.seed}, {options.seconds:.0f} s")  # noqa: T201
    for name in names:
        print(f"{name:16} {counts[name]:>9,} inputs {found[name]:>5,} findings")  # noqa: T201
    sys.exit(any(found.values()))


def _keep(name: str, content: bytes, problem: str) -> None:
    path = CORPUS / name / hashlib.sha256(problem.encode()).hexdigest()[:12]
    if not path.exists():  # one input for each place that fails
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{path}:\n{problem}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
