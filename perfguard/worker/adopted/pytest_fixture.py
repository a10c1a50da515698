"""The `benchmark` fixture as tests see it: instead of timing, it hands the call over and waits until all is done."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from perfguard.worker.adopted.asv_instances import renewed
from perfguard.worker.checks import UnsoundCaseError

Body = Callable[[Callable[[], object]], object]
"""Takes the call that a test wants timed and gives the result that the test goes on with."""


class BenchmarkFixture:
    """What a test gets as `benchmark`, with the names of pytest-benchmark's fixture."""

    stats = None
    """As under `--benchmark-disable`: there are no times for the test to look at."""
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
        state = _State(target, tuple(args), dict(kwargs or {}), setup=setup, teardown=teardown)
        state.renew()
        try:
            return self._hand_over(renewed(state.call, state.renew))
        finally:
            state.end()

    def weave(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Not supported.

        Raises:
            UnsoundCaseError: Always.
        """
        raise UnsoundCaseError("benchmark.weave is not supported; time a call with benchmark(f, …)")

    patch = weave

    def _hand_over(self, call: Callable[[], object]) -> Any:
        if self._is_used:
            raise UnsoundCaseError("the test uses its benchmark fixture twice; a case is one call")
        self._is_used = True
        return self._body(call)


class _State:
    """Arguments of a call that are made again before each."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        setup: Callable[[], Any] | None,
        teardown: Callable[..., Any] | None,
    ) -> None:
        self._target = target
        self._args = args
        self._kwargs = kwargs
        self._setup = setup
        self._teardown = teardown
        self._is_made = False

    def call(self) -> Any:
        return self._target(*self._args, **self._kwargs)

    def renew(self) -> None:
        self.end()
        made = None if self._setup is None else self._setup()
        if made is not None:
            self._args, self._kwargs = made
        self._is_made = True

    def end(self) -> None:
        if self._is_made and self._teardown is not None:
            self._teardown(*self._args, **self._kwargs)
        self._is_made = False
