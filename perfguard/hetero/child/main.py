"""The process that trains: a job on stdin, events on stdout, one JSON line each; ends with what came of it.

Lines are `{"kind": …, "value": …}`: `started`, `epoch`, `used`, `returned`, `lost`, `outcome`, and `error` with an exit
code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import msgspec

from perfguard.codec import to_builtins
from perfguard.errors import ExitCode, PerfguardError
from perfguard.hetero.happenings import Happening, RangeReturned, WorkerGone
from perfguard.records.training import TrainingJob


def main() -> None:
    """Train."""
    # Whatever the model prints goes to stderr; stdout carries the events.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)

    def tell(kind: str, value: Any) -> None:
        try:
            out.write(json.dumps({"kind": kind, "value": to_builtins(value)}) + "\n")
        except BrokenPipeError:
            sys.exit(int(ExitCode.INFRASTRUCTURE))

    def happened(happening: Happening) -> None:
        if isinstance(happening, RangeReturned):
            tell("returned", happening)
        elif isinstance(happening, WorkerGone):
            tell("lost", happening)

    try:
        job = msgspec.json.decode(sys.stdin.buffer.read(), type=TrainingJob)
        from perfguard.hetero.child.training import Follower, train

        follower = Follower(
            started=lambda on: tell("started", on),
            epoch=lambda epoch: tell("epoch", epoch),
            used=lambda at_s, groups: tell("used", {"at_s": at_s, "groups": groups}),
            happened=happened,
            wants_stop=lambda: asked,
        )
        tell("outcome", train(job, follower))
    except PerfguardError as error:
        tell("error", {"message": str(error), "exit_code": int(error.exit_code)})
    except ImportError as error:
        tell(
            "error",
            {
                "message": f"training needs torch: {error}; install perfguard[hetero]",
                "exit_code": int(ExitCode.INFRASTRUCTURE),
            },
        )


if __name__ == "__main__":
    main()
