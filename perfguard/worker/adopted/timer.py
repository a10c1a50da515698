"""`torch.utils.benchmark.Timer` statements of a file as cases, read without measuring anything.

Such files are scripts: they make timers and measure at once, often for minutes. While one is imported, `Timer` is a
stand-in that keeps what it was given and answers each measurement with one nanosecond.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from perfguard.records.facts import fact
from perfguard.records.spec import ParameterValue
from perfguard.worker.adopted.found import TIMER, AdoptedTarget, FoundBenchmarks, benchmark_name, clean, dotted
from perfguard.worker.adopted.instances import Instance
from perfguard.worker.cases import MissingTargetError, load_module
from perfguard.worker.results import UnsoundCaseError

_NOTHING_S = 1e-9
_PYTHON = "python"
_TASK_FIELDS = ("label", "sub_label", "description", "env", "num_threads")
"""What a measurement says that it measured, beside its code; Compare reads it."""
_MAKES_TIMERS = re.compile(r"(?:(?:make|get|build|create)_)?timers?(?:_|$)")
"""Names of functions that are called for the timers that they return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What one Timer was given."""

    stmt: str  # Timed
    setup: str  # Run before
    variables: dict[str, Any] = field(compare=False)  # What both see
    label: str | None  # Of the task
    sub_label: str | None  # Of the input, mostly
    description: str | None  # Of the variant, mostly
    num_threads: int  # Threads of torch; by default a Timer has one
    language: str  # `python`, or another that is not timed here


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedStatement:
    """A statement with the words of its case id."""

    name: str  # The benchmark's name
    parameters: tuple[tuple[str, ParameterValue], ...]  # Unique among the statements of this name
    statement: Statement
    module: ModuleType  # Its file, which stands for `__main__` in its set-up


_read: dict[str, tuple[NamedStatement, ...]] = {}  # By file: importing it again would make its tensors again


def statements_of(path: str) -> tuple[NamedStatement, ...]:
    """All statements of a file, in the order in which their timers are made.

    Raises Exception: whatever the file raises.
    """
    if path not in _read:
        recorded: list[Statement] = []
        with _recording(recorded):
            module = load_module(path)
            made = len(recorded)
            for make in _makers(module):
                make()
        known = recorded[:made]  # the file may call such a function itself
        recorded[made:] = [statement for statement in recorded[made:] if statement not in known]
        _read[path] = _named(path, module, recorded)
    return _read[path]


def _named(path: str, module: ModuleType, recorded: Sequence[Statement]) -> tuple[NamedStatement, ...]:
    named: list[NamedStatement] = []
    for statement in recorded:
        first = next(iter(statement.stmt.strip().splitlines()), "")
        name = benchmark_name((TIMER, *dotted(path).split("."), statement.label or first))
        given = (("sub_label", statement.sub_label), ("description", statement.description))
        parameters: list[tuple[str, ParameterValue]] = [(key, clean(text)) for key, text in given if text]
        parameters.append(("num_threads", statement.num_threads))
        alike = sum(n.name == name and n.parameters[: len(parameters)] == tuple(parameters) for n in named)
        if alike:
            parameters.append(("occurrence", alike + 1))
        named.append(NamedStatement(name=name, parameters=tuple(parameters), statement=statement, module=module))
    return tuple(named)


def _makers(module: ModuleType) -> Iterator[Callable[[], object]]:
    """The file's own functions without parameters that say, by name or annotation, that they return timers."""
    for name, function in list(vars(module).items()):
        if not inspect.isfunction(function) or function.__module__ != module.__name__:
            continue
        says_so = _MAKES_TIMERS.match(name) or "Timer" in str(inspect.signature(function).return_annotation)
        needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        if says_so and not any(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed):
            yield function


@contextlib.contextmanager
def _recording(recorded: list[Statement]) -> Iterator[None]:
    """Put the stand-in in Timer's place."""
    import torch.utils.benchmark
    from torch.utils.benchmark.utils import timer

    places: tuple[Any, ...] = (torch.utils.benchmark, timer)
    original = timer.Timer
    stand_in = _stand_in(original, recorded)
    for module in places:
        module.Timer = stand_in
    try:
        yield
    finally:
        for module in places:
            module.Timer = original


def _stand_in(original: type, recorded: list[Statement]) -> type:
    from torch.utils.benchmark.utils.common import Measurement, TaskSpec

    signature = inspect.signature(original)

    class RecordedTimer(original):  # type: ignore[misc]
        """Keeps what it is given."""

        def __init__(self, *args: object, **kwargs: object) -> None:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            statement = _statement(given.arguments)
            recorded.append(statement)
            named = {name: given.arguments[name] for name in _TASK_FIELDS}
            self._task_spec = TaskSpec(stmt=statement.stmt, setup=statement.setup, **named)

        def timeit(self, *_args: object, **_kwargs: object) -> Measurement:
            return Measurement(number_per_run=1, raw_times=[_NOTHING_S], task_spec=self._task_spec)

        autorange = blocked_autorange = adaptive_autorange = timeit

        def repeat(self, *_args: object, **_kwargs: object) -> list[float]:
            return [_NOTHING_S]

        def collect_callgrind(self, *_args: object, **_kwargs: object) -> None:
            raise UnsoundCaseError("the file calls collect_callgrind when it is imported; move that into a function")

    return RecordedTimer


def _statement(given: Mapping[str, Any]) -> Statement:
    """What Timer was given, by its own names."""
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CopyIfCallgrind

    language = str(getattr(given["language"], "name", given["language"])).lower()
    return Statement(
        stmt=_dedented(given["stmt"]),
        setup=_dedented(given["setup"]),
        variables=CopyIfCallgrind.unwrap_all(dict(given["globals"] or {})),
        language=_PYTHON if language == "py" else language,
        **{name: given[name] for name in ("label", "sub_label", "description", "num_threads")},
    )


def _dedented(code: str) -> str:
    return textwrap.dedent(code).removeprefix("\n").rstrip()


_FUNCTION = "_perfguard_statement"
_TEMPLATE = """\
def {function}():
    {setup}
    yield
    {first}
    while True:
        {stmt}
        yield
"""
"""One iteration is one resumption of a generator: set-up and statement share local variables, as in timeit's loop.
The first iteration, which is never timed, gives the value of a statement that has one."""


class TimerSource:
    """Compiles one statement."""

    def __init__(self, target: AdoptedTarget, parameters: dict[str, Any]) -> None:
        """Raises MissingTargetError where this arm has no such statement, UnsoundCaseError where it is not Python."""
        for named in statements_of(target.place):
            if named.name == target.name and dict(named.parameters) == parameters:
                break
        else:
            raise MissingTargetError(f"{target.place} makes no such Timer in this arm")
        self._statement, self._module = named.statement, named.module
        if self._statement.language != _PYTHON:
            raise UnsoundCaseError(f"the statement's language is {self._statement.language}; only Python is timed here")

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """The statement's number of threads."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self._statement.num_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def set_up(self) -> Instance:
        """The statement behind its set-up, which runs here.

        `from __main__ import f` finds what the file defines, which is a script in its author's hands.
        """
        import torch

        generator = _compiled(self._statement, {"torch": torch, **self._statement.variables})
        before = sys.modules["__main__"]
        sys.modules["__main__"] = self._module
        try:
            next(generator)
        finally:
            sys.modules["__main__"] = before
        return Instance(generator.__next__, generator.close)


def _compiled(statement: Statement, variables: dict[str, Any]) -> Generator[object, None, None]:
    setup, stmt = statement.setup or "pass", statement.stmt or "pass"
    for code in (setup, stmt):  # a Timer, too, refuses code that would end or suspend the function around it
        if (error := _syntax_error(code, "exec")) is not None:
            raise UnsoundCaseError(f"the statement cannot be timed: {error.msg}") from error
    source = _TEMPLATE.format(
        function=_FUNCTION,
        setup=setup.replace("\n", "\n    "),
        first="pass" if _syntax_error(stmt, "eval") else f"yield ({stmt}\n)",
        stmt=stmt.replace("\n", "\n        "),
    )
    exec(compile(source, "<timer statement>", "exec"), variables)  # noqa: S102 - what a Timer does, too
    generator: Generator[object, None, None] = variables[_FUNCTION]()
    return generator


def _syntax_error(code: str, mode: str) -> SyntaxError | None:
    try:
        compile(code, "<timer statement>", mode)
    except SyntaxError as error:
        return error
    return None


def find_timers(path: str, found: FoundBenchmarks) -> None:
    """Add the statements of a file.

    Raises RuntimeError: torch is not installed beside the suite; Exception: whatever the file raises.
    """
    try:
        import torch.utils.benchmark  # noqa: F401
    except ImportError as error:
        raise RuntimeError(f"torch cannot be imported in the environment under test: {error}") from error
    named = statements_of(path)
    timed = [each for each in named if each.statement.language == _PYTHON]
    for each in timed:
        names, values = zip(*each.parameters, strict=True)
        target = AdoptedTarget(tool=TIMER, place=path, name=each.name)
        found.add(target, each.name, names, [values], doc=" ".join(each.statement.stmt.split())[:80])
    if not named:
        found.notes.append(fact("adopted.no_timer", place=path, tool=TIMER))
    found.count(fact("adopted.cpp_statements", tool=TIMER, number=len(named) - len(timed)))
    for threads, number in sorted(Counter(each.statement.num_threads for each in timed).items()):
        found.count(fact("adopted.own_threads", tool=TIMER, threads=threads, number=number))
