"""The import path of the arm, which a process gets only after perfguard's own modules are imported.

Python is started without the arm's folders on its path and without `site` (`-S`), so that no module, `.pth` file or
`sitecustomize` of the arm runs before the worker has bound its clocks.
"""

from __future__ import annotations

import os
import site
import sys

from perfguard.records.protocol import PATH_VARIABLE


def join_arm() -> None:
    """Put the arm's folders on the import path, as PYTHONPATH would, and let `site` do what it does at start-up."""
    path = os.environ.pop(PATH_VARIABLE, None)
    if path is None:
        return
    os.environ["PYTHONPATH"] = path  # for what the arm's code starts
    sys.path[1:1] = path.split(os.pathsep)
    if sys.flags.no_site:
        site.main()
