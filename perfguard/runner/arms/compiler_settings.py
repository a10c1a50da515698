"""Whether code of the arms sets variables of torch's compiler, which reads them when it is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from perfguard.plain_files import read_plain

_SETS = re.compile(rb"environ\b[^\n]*\bTORCH(?:INDUCTOR|DYNAMO|_COMPILE|_LOGS)")
_MOST_FILES = 20_000
_MOST_BYTES = 4 << 20


def sets_compiler_variables(roots: Iterable[str]) -> bool:
    """Whether a Python file below the roots sets such a variable; also where there are too many files to look at."""
    seen = 0
    for root in dict.fromkeys(os.path.realpath(root) for root in roots):
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not _is_foreign(Path(folder) / name)]
            for path in (Path(folder) / name for name in names if name.endswith(".py")):
                seen += 1
                if seen > _MOST_FILES or _sets(path):
                    return True
    return False


def _is_foreign(folder: Path) -> bool:
    return folder.name.startswith((".", "__pycache__")) or (folder / "pyvenv.cfg").is_file()


def _sets(path: Path) -> bool:
    content = read_plain(path, _MOST_BYTES)
    return content is not None and _SETS.search(content) is not None
