"""Runs tests against one changed module, each time in a fork that has numpy, scipy and pytest already."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hypothesis
import pytest

MEMORY_BYTES = 4 << 30
"""A changed loop that collects for ever ends here."""
_TESTS_FAILED = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)


class ChangedModule(SourceFileLoader):
    """Imports one module from a syntax tree, and leaves all others to Python."""

    def __init__(self, module: Path, tree: ast.Module) -> None:
        self.module_name = ".".join(module.with_suffix("").parts)
        self.tree = tree
        super().__init__(self.module_name, str(module.resolve()))

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Called by the import system for every module."""
        if name != self.module_name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        """The changed code."""
        return compile(self.tree, self.path, "exec")


class LinesOfTests:
    """A pytest plugin: which lines of some modules each test runs, and how long the test takes."""

    def __init__(self, modules: Sequence[Path]) -> None:
        self.lines: dict[str, dict[str, set[int]]] = {str(module): {} for module in modules}
        """Lines by test, by module; without the tests that run none of it."""
        self.seconds: dict[str, float] = {}
        self._modules = {str(module.resolve()): str(module) for module in modules}
        self._test = ""
        self._left: dict[CodeType, set[int]] = {}
        """Lines of each function that the test has not run yet: without any, following it costs time for nothing."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Called for every test."""
        self._test, self._left = item.nodeid, {}
        started = time.perf_counter()
        sys.settrace(self._called)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[self._test] = time.perf_counter() - started

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self._modules:
            return None
        if code not in self._left:
            self._left[code] = {line for _, _, line in code.co_lines() if line}
        return self._traced if self._left[code] else None

    def _traced(self, frame: FrameType, event: str, arg: object) -> Any:
        lines = self.lines[self._modules[frame.f_code.co_filename]]
        lines.setdefault(self._test, set()).add(frame.f_lineno)
        self._left[frame.f_code].discard(frame.f_lineno)
        return self._traced


class OnlyThese:
    """A pytest plugin: runs the given tests alone, in the given order, and doesn't make failing examples smaller."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {test: position for position, test in enumerate(tests)}

    def pytest_configure(self) -> None:
        """Called when conftest.py has been read."""
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", hypothesis.settings.get_profile("perfguard"), phases=phases)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called with all tests of the files."""
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda i: self._order[i.nodeid])


def fails(module: Path, tree: ast.Module, tests: Sequence[str], *, limit_s: float) -> bool:
    """Whether any of the tests fails, or takes more CPU seconds than the limit, with the changed module."""

    def run() -> int:
        sys.meta_path.insert(0, ChangedModule(module, tree))
        return _pytest([OnlyThese(tests)], sorted({test.partition("::")[0] for test in tests}))

    return _forked(run, limit_s) in _TESTS_FAILED


def lines_of_tests(modules: Sequence[Path], files: Sequence[str]) -> LinesOfTests:
    """Run the tests as they are; raises where one fails."""
    reading, writing = os.pipe()

    def run() -> int:
        found = LinesOfTests(modules)
        code = _pytest([found], files)
        with os.fdopen(writing, "w") as out:
            out.write(repr((found.lines, found.seconds)))
        return code

    # The answer is larger than a pipe holds, so it's read while the child runs.
    child = _fork(run)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"the tests fail as they are: pytest {' '.join(files)}")
    found = LinesOfTests(modules)
    found.lines, found.seconds = ast.literal_eval(text)
    return found


def _pytest(plugins: Sequence[object], files: Sequence[str]) -> int:
    return int(pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *files], plugins=[*plugins]))


def _fork(run: Callable[[], int]) -> int:
    child = os.fork()
    if child:
        return child
    code = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        code = run()
    finally:
        os._exit(code)


def _forked(run: Callable[[], int], limit_s: float) -> int:
    def limited() -> int:
        # Ends what loops for ever even where nobody waits for it any more.
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s)))
        return run()

    child = _fork(limited)
    deadline = time.monotonic() + 3 * limit_s
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        late = time.monotonic() > deadline
        if not ended and not late:
            time.sleep(0.005)
            continue
        # What a test started goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return int(pytest.ExitCode.TESTS_FAILED) if code < 0 else code
