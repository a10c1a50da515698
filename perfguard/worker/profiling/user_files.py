"""Which files hold the user's own code, and what they are called."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_COMPILER = "torch."
"""The files that torch.compile writes can lie anywhere; they are modules of torch."""
_WORKER = Path(__file__).absolute().parents[1]
_START_SCRIPT = str(_WORKER.parents[1] / "start.py")


class UserFiles:
    """Tells the files of the user's code from those of libraries, and remembers which is which."""

    def __init__(self) -> None:
        self._directory = _working_directory()
        roots = {self._folder(entry) for entry in ("", *sys.path)} - {os.sep}
        self._roots = sorted(roots, key=len, reverse=True)  # the innermost one names a file
        libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(_WORKER))
        self._libraries = tuple(map(self._folder, libraries))
        self._names: dict[str, str | None] = {}

    @property
    def functions(self) -> tuple[Callable[..., object], ...]:
        """Those that run when a file's name is asked for."""
        return self.name, self._is_library, self._from_root, self._absolute

    def name(self, filename: str, module: object) -> str | None:
        """What a file is called: its path from the folder that it was imported from; None for a library's.

        Args:
            filename: As its code has it.
            module: `__name__` of the module that it is.
        """
        try:
            return self._names[filename]
        except KeyError:
            name = None if self._is_library(filename, module) else self._from_root(self._absolute(filename))
            self._names[filename] = name
            return name

    def _is_library(self, filename: str, module: object) -> bool:
        if filename.startswith("<") or (isinstance(module, str) and module.startswith(_COMPILER)):
            return True
        path = self._absolute(filename)
        return path.startswith(self._libraries) or path == _START_SCRIPT or _INSTALLED.search(path) is not None

    def _from_root(self, path: str) -> str:
        for known in (path, os.path.realpath(path)):
            for root in self._roots:
                if known.startswith(root):
                    return known.removeprefix(root)
        return path

    def _absolute(self, path: str) -> str:
        """Without following links, as imports do not follow them."""
        return os.path.normpath(os.path.join(self._directory, path))  # noqa: PTH118 - names of code are texts

    def _folder(self, path: str) -> str:
        """What paths in a folder begin with."""
        return os.path.join(self._absolute(path), "")  # noqa: PTH118


def _working_directory() -> str:
    """Where the process works; the root of all where that folder is gone."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return os.sep
