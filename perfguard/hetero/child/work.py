"""The process of a worker on another host: `work ADDRESS DATA THREADS WAIT`; ends with one JSON line on stdout."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from perfguard.errors import ExitCode, PerfguardError


def main() -> None:
    """Work until the coordinator says stop."""
    address, data, threads, wait = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the model prints goes to stderr
    try:
        from perfguard.hetero.child.training import work_remotely

        said: dict[str, str | int] = {
            "name": work_remotely(address, Path(data), threads=int(threads), timeout_s=float(wait))
        }
    except PerfguardError as error:
        said = {"error": str(error), "exit_code": int(error.exit_code)}
    except ImportError as error:
        text = f"training needs torch: {error}; install perfguard[hetero]"
        said = {"error": text, "exit_code": int(ExitCode.INFRASTRUCTURE)}
    with out:
        out.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
