# ruff: noqa: ARG005 - pytest reads the names of the arguments of a hook
"""A pytest plugin in place of pytest-benchmark: its options, marker and hooks are accepted, its fixture is ours.

Imported only where pytest runs, in the environment under test.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

import pytest

from perfguard.worker.adopted.asv import renewed
from perfguard.worker.results import UnsoundCaseError

Body = Callable[[Callable[[], object]], object]
"""Takes the call that a test wants timed and gives the result that the test goes on with."""


class BenchmarkFixture:
    """What a test gets as `benchmark`, with the names of pytest-benchmark's fixture."""

    stats = None  # As under `--benchmark-disable`: there are no times for the test to look at
    enabled = True
    disabled = False
    cprofile_stats = None

    def __init__(self, name: str, body: Body) -> None:
        """`name` is the test's; `body` runs while the test waits."""
        self.name = self.fullname = name
        self.group: str | None = None
        self.extra_info: dict[str, Any] = {}
        self._body = body
        self._is_used = False

    def __repr__(self) -> str:
        return "<benchmark>"  # stands in assertions that fail, which must read alike in every run

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have `function(*args, **kwargs)` timed; gives the result of a last call."""
        return self._hand_over(functools.partial(function, *args, **kwargs) if args or kwargs else function)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        **_counts: object,
    ) -> Any:
        """The same; where there is a `setup`, before each call. Rounds and iterations are perfguard's own."""
        if setup is None and teardown is None:
            return self(target, *args, **(kwargs or {}))
        arguments, is_made = (tuple(args), dict(kwargs or {})), False

        def end() -> None:
            nonlocal is_made
            if is_made and teardown is not None:
                teardown(*arguments[0], **arguments[1])
            is_made = False

        def renew() -> None:
            nonlocal arguments, is_made
            end()
            made = None if setup is None else setup()
            arguments = arguments if made is None else made
            is_made = True

        renew()
        try:
            return self._hand_over(renewed(lambda: target(*arguments[0], **arguments[1]), renew))
        finally:
            end()

    def weave(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Not supported; always raises UnsoundCaseError."""
        raise UnsoundCaseError("benchmark.weave is not supported; time a call with benchmark(f, …)")

    patch = weave

    def _hand_over(self, call: Callable[[], object]) -> Any:
        if self._is_used:
            raise UnsoundCaseError("the test uses its benchmark fixture twice; a case is one call")
        self._is_used = True
        return self._body(call)


_OPTIONS: dict[str, dict[str, str]] = {
    "disable-gc skip disable enable only verbose quiet autosave save-data": {"action": "store_true"},
    "min-time max-time min-rounds timer calibration-precision warmup-iterations save json cprofile cprofile-loops "
    "cprofile-top cprofile-dump storage netrc sort group-by columns name time-unit": {},
    "warmup compare histogram": {"nargs": "?"},
    "compare-fail": {"nargs": "+"},
}
"""Options of pytest-benchmark by the way in which they take a value."""
_BLOCKED = ("benchmark", "pytest_benchmark.plugin", "codspeed", "cacheprovider", "faulthandler", "unraisableexception")
"""Plugins that would bring another `benchmark` fixture, write into the tree, take the worker's fault handler, or
collect garbage five times after each run."""
_SILENCING = {"dist": "no", "tx": [], "numprocesses": 0, "timeout": 0}
"""Options of pytest-xdist and pytest-timeout, which would run the test elsewhere or end it."""


_HOOKS = type(
    "BenchmarkHooks",
    (),
    {
        "pytest_benchmark_scale_unit": lambda config, unit, benchmarks, best, worst, sort: None,
        "pytest_benchmark_generate_machine_info": lambda config: None,
        "pytest_benchmark_update_machine_info": lambda config, machine_info: None,
        "pytest_benchmark_generate_commit_info": lambda config: None,
        "pytest_benchmark_update_commit_info": lambda config, commit_info: None,
        "pytest_benchmark_group_stats": lambda config, benchmarks, group_by: None,
        "pytest_benchmark_generate_json": lambda config, benchmarks, include_data, machine_info, commit_info: None,
        "pytest_benchmark_update_json": lambda config, benchmarks, output_json: None,
        "pytest_benchmark_compare_machine_info": lambda config, benchmarksession, machine_info, compared_benchmark: ...,
    },
)
"""Hooks that conftest files may implement for pytest-benchmark; none is called."""


class BenchmarkPlugin:
    """Collects tests that use the fixture, and runs those that are chosen."""

    def __init__(
        self,
        body: Body,
        *,
        choose: Callable[[list[pytest.Item]], list[pytest.Item]],
        seed: Callable[[], None] = lambda: None,
    ) -> None:
        """`choose` gets what was collected and gives what is to run; `seed` is called before a test is set up."""
        self._body = body
        self._choose = choose
        self._seed = seed
        self.problems: list[str] = []  # What went wrong, the first thing first
        self.skipped: str | None = None  # Why the test was skipped

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        """The options of pytest-benchmark, which a project's `addopts` may hold."""
        group = parser.getgroup("benchmark")
        for names, settings in _OPTIONS.items():
            for name in names.split():
                group.addoption(f"--benchmark-{name}", **settings)

    def pytest_addhooks(self, pluginmanager: pytest.PytestPluginManager) -> None:
        """The hooks of pytest-benchmark."""
        pluginmanager.add_hookspecs(_HOOKS)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """The marker of pytest-benchmark; and other plugins keep still, before they look at their options."""
        config.addinivalue_line("markers", "benchmark(**settings): of pytest-benchmark; ignored")
        for name, value in _SILENCING.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave what is to run."""
        _keep_conftests(config)
        items[:] = self._choose(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Seed before the test's fixtures are made."""
        self._seed()

    def pytest_exception_interact(
        self, call: pytest.CallInfo[Any], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        """Keep what a test or an import raised."""
        if call.excinfo is not None:
            # An unknown fixture's exception says less than what pytest prints.
            said = getattr(report.longrepr, "errorstring", None)
            text = call.excinfo.value if said is None else said.partition("\n")[0]
            self.problems.append(f"{call.excinfo.typename}: {' '.join(str(text).split())}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep why a test was skipped."""
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped = str(report.longrepr[2])

    @pytest.fixture
    def benchmark(self, request: pytest.FixtureRequest) -> BenchmarkFixture:
        """What the test has timed."""
        return BenchmarkFixture(request.node.name, self._body)


def _keep_conftests(config: pytest.Config) -> None:
    """Leave every conftest among the imported modules, under its path where another one has taken its name.

    Arms are identical where all that they imported is; a file that pytest has taken off the list would be overlooked.
    """
    for plugin in config.pluginmanager.get_plugins():
        file = getattr(plugin, "__file__", None)
        if isinstance(plugin, ModuleType) and file is not None and sys.modules.get(plugin.__name__) is not plugin:
            sys.modules[os.path.relpath(file)] = plugin


def run_pytest(selector: str, plugin: BenchmarkPlugin, *options: str) -> int:
    """Run pytest in this process, on the main thread, with the project's settings; gives its exit code."""
    here = os.getcwd()  # noqa: PTH109
    arguments = [selector, f"--rootdir={here}", f"--confcutdir={here}", "-q", "--no-header", "--no-summary", "-s"]
    arguments += [f"-pno:{name}" for name in _BLOCKED]
    if importlib.util.find_spec("pytest_cov") is not None and not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        arguments.append("--no-cov")  # it would trace what is timed, and starts before a plugin could stop it
    return int(pytest.main([*arguments, *options], plugins=[plugin]))
