"""`python -m perfguard`."""

import contextlib
import os
import sys

# `-m` puts the working directory first: a project's `numbers.py` would be imported in place of Python's own.
with contextlib.suppress(OSError):  # it may be gone
    if not getattr(sys.flags, "safe_path", False) and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109
        del sys.path[0]

from perfguard.cli import main

if __name__ == "__main__":
    main()
