"""The logs of oneDNN and MKL, one line for each call, switched on for one step and written to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from perfguard.worker.torch_env import redirected

TIMESTAMP_VARIABLE = "ONEDNN_VERBOSE_TIMESTAMP"
"""oneDNN reads it once, at its first message: it has to be set before a step runs."""


class LibraryLogs:
    """The logs of one process; the libraries print their header once, so it is kept and given to every file."""

    def __init__(self) -> None:
        self._header: dict[bytes, None] = {}

    @contextmanager
    def into(self, path: Path) -> Iterator[tuple[str, ...]]:
        """Log to a file, along with whatever else is printed; gives the names of the libraries that do.

        Raises OSError: the file cannot be written.
        """
        with captured_output(path), ExitStack() as switched:
            logging = []
            for name, switch in _switches():
                with suppress(AssertionError, RuntimeError):  # the library was built without it
                    switched.enter_context(switch())
                    logging.append(name)
            yield tuple(logging)
        self._complete(path)

    def _complete(self, path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        found = dict.fromkeys(line for line in lines if _is_header(line))
        missing = [line for line in self._header if line not in found]
        self._header.update(found)
        if missing:
            path.write_bytes(b"".join((*missing, *lines)))


def _is_header(line: bytes) -> bool:
    if line.startswith(b"MKL_VERBOSE "):
        return b"NThr:" not in line
    marker, _, rest = line.partition(b"_verbose,")
    return marker in {b"onednn", b"dnnl", b"mkldnn"} and b"info," in rest[:60]


def _switches() -> Iterator[tuple[str, Callable[[], AbstractContextManager[Any]]]]:
    """The libraries that this torch was built with, each with what turns its log on."""
    import torch

    if torch.backends.mkldnn.is_available():
        # IPEX brings a oneDNN of its own, which torch's switch does not reach.
        ipex = sys.modules.get("intel_extension_for_pytorch") if os.environ.get("PERFGUARD_STACK") == "ipex" else None
        verbose = getattr(ipex, "verbose", None)
        onednn = verbose if callable(verbose) else torch.backends.mkldnn.verbose
        yield "onednn", lambda: onednn(2)  # both creation and execution
    if torch.backends.mkl.is_available():
        yield "mkl", lambda: torch.backends.mkl.verbose(1)


@contextmanager
def captured_output(path: Path) -> Iterator[None]:
    """Send what is printed to file descriptor 1 to a file, by this process and by those that it starts meanwhile.

    The file is created, or emptied. May be nested: the innermost file takes it. Whatever happens, the descriptor leads
    to its old place afterwards.

    Raises OSError: the file cannot be written, or descriptor 1 is closed.
    """
    os.fstat(1)  # where it is closed, the file would take its number
    with path.open("wb", buffering=0) as target, redirected(target.fileno()):
        yield
