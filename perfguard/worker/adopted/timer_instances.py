"""Timer statements as calls."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator
from types import ModuleType
from typing import Any

from perfguard.worker.adopted.instances import Instance
from perfguard.worker.adopted.targets import AdoptedTarget
from perfguard.worker.adopted.timer_recording import NamedStatement, Statement, statements_of
from perfguard.worker.cases import MissingTargetError
from perfguard.worker.checks import UnsoundCaseError

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

    def __init__(self, named: NamedStatement) -> None:
        """Raises UnsoundCaseError where the statement cannot be timed here."""
        if not named.statement.is_python:
            raise UnsoundCaseError(f"the statement's language is {named.statement.language}; only Python is timed here")
        self._statement = named.statement
        self._module = named.module

    @classmethod
    def of(cls, target: AdoptedTarget, parameters: dict[str, Any]) -> TimerSource:
        """The source of a case.

        Raises:
            MissingTargetError: This arm's file has no such statement.
        """
        return cls(find_statement(target, parameters))

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
        """The statement behind its set-up, which runs here."""
        import torch

        generator = _compiled(self._statement, {"torch": torch, **self._statement.variables})
        with _as_main(self._module):
            next(generator)
        return Instance(generator.__next__, generator.close)


@contextlib.contextmanager
def _as_main(module: ModuleType) -> Iterator[None]:
    """Let `from __main__ import f` find what the file defines, which is a script in its author's hands."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = before


def find_statement(target: AdoptedTarget, parameters: dict[str, Any]) -> NamedStatement:
    """The statement behind a case.

    Raises:
        MissingTargetError: There is none in this arm.
    """
    for named in statements_of(target.place):
        if named.name == target.name and dict(named.parameters) == parameters:
            return named
    raise MissingTargetError(f"{target.place} makes no such Timer in this arm")


def _compiled(statement: Statement, variables: dict[str, Any]) -> Generator[object, None, None]:
    setup, stmt = statement.setup or "pass", statement.stmt or "pass"
    for code in (setup, stmt):
        _refuse_at_top_level(code)
    source = _TEMPLATE.format(
        function=_FUNCTION,
        setup=setup.replace("\n", "\n    "),
        first=f"yield ({stmt}\n)" if _is_expression(stmt) else "pass",
        stmt=stmt.replace("\n", "\n        "),
    )
    exec(compile(source, "<timer statement>", "exec"), variables)  # noqa: S102 - what a Timer does, too
    generator: Generator[object, None, None] = variables[_FUNCTION]()
    return generator


def _is_expression(code: str) -> bool:
    try:
        compile(code, "<timer statement>", "eval")
    except SyntaxError:
        return False
    return True


def _refuse_at_top_level(code: str) -> None:
    """Raise UnsoundCaseError where code would end or suspend the function around it, as Timer refuses it, too."""
    try:
        compile(code, "<timer statement>", "exec")
    except SyntaxError as error:
        raise UnsoundCaseError(f"the statement cannot be timed: {error.msg}") from error
