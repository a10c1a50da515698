"""The declarative API for benchmarks: a decorated factory that returns the callable to time.

```python
import perfguard

@perfguard.benchmark(params={"hidden": [256, 512]}, dtype=["fp32", "bf16"], tags=["step"])
def my_step(hidden, dtype):
    model, optimizer, batch = build(hidden, dtype)      # set-up: not timed
    def step():                                         # timed
        ...
        return loss                                     # checked, outside the timed region
    step.check = lambda: {"gradient_norm": norm(model)} # optional: called once, after the first call of step
    step.vary = lambda: batch.copy_(torch.randn(batch.shape)) # optional: other inputs, in place; not timed
    return step
```
Both arms must agree on the result of the first call and on what `check` returns, a mapping of names to finite numbers,
within a tolerance that depends on the parameter `dtype`; else the verdict is `different`. Choose numbers that are not
near zero by cancellation: losses and norms. Without a `check` only the result is compared.

In each block both arms call `vary` before one sample, under a seed that the worker gets only then, and the result of
the sample's last call is compared as well. That shows work that is skipped or kept once it is timed. `vary` keeps
shapes and copies values drawn apart: `batch.normal_()` would fill memory in its order, which is another one in
channels_last. It costs time, so it draws no more than it must. Where it returns a function, that is asked for numbers
in place of the result, as `check` is.

What a benchmark knows beside its time it may give by another attribute, `step.signals`: a function without arguments
that returns a mapping of names to finite numbers, of one call among those since it was last asked. More is worse. The
suffix of a name's first word says what its value is: seconds, `load_s of worker 3`; a share of a whole,
`padding_share`; anything else is a count, `retries`. The gate judges them like CPU time. `cpu_s` is an exception: CPU
seconds of processes of the benchmark's own, which are added to the worker's.

The worker seeds Python, NumPy and torch before it calls the factory, so plain `torch.randn` is reproducible.
Must not import torch: the decorator also runs where only the specs are wanted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perfguard.errors import ConfigError
from perfguard.records.spec import BenchmarkSpec, ParameterValue, Phase

Timed = Callable[[], object]  # What is timed: returns the loss (or output tensor) of the call
Factory = Callable[..., Timed]
F = TypeVar("F", bound=Factory)

_NAME = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Declared:
    """A factory as it was declared in a user's file."""

    spec: BenchmarkSpec
    """Its spec; `target` names the file's module until the loader makes it relative to the arm's tree."""
    factory: Factory


declared: dict[str, Declared] = {}
"""Benchmarks declared by imports of this process, by name; read by the worker's discovery."""


def benchmark(
    function: F | None = None,
    *,
    name: str | None = None,
    params: Mapping[str, Sequence[ParameterValue]] | None = None,
    dtype: str | Sequence[str] | None = None,
    memory_format: str | Sequence[str] | None = None,
    phase: str | Sequence[str] = Phase.STEP.value,
    tags: Sequence[str] = (),
) -> F | Callable[[F], F]:
    """Declare a factory as a benchmark; the function itself is returned unchanged.

    Args:
        function: The factory, when used without parentheses.
        name: Dotted name; default: the function's name.
        params: Values for the factory's keyword arguments; the benchmark has one case for each combination.
        dtype: One or several of `fp32`, `bf16`, ...; a list becomes a parameter, a plain string is a label.
        memory_format: Likewise, for instance `channels_last`.
        phase: `forward`, `forward+backward`, `optimizer` or `step`; several become a parameter.
        tags: Free labels for `perfguard list --tag`.

    Raises:
        ConfigError: The name is taken or malformed, a parameter has no values, or the phase is unknown.
    """
    if function is not None and not callable(function):
        raise ConfigError(f"a benchmark's name goes by keyword: @benchmark(name={function!r})")

    def declare(factory: F) -> F:
        if "<locals>" in factory.__qualname__:
            raise ConfigError(
                f"benchmark {name or factory.__name__!r} is defined inside a function, where workers cannot find it; "
                "define its factory at module level and use params= for variants"
            )
        chosen = name or factory.__name__
        if not _NAME.fullmatch(chosen):
            raise ConfigError(f"benchmark name {chosen!r} may hold only letters, digits, '_', '.' and '-'")
        spec = BenchmarkSpec(
            name=chosen,
            target=f"{factory.__module__}:{factory.__qualname__}",
            parameters=_parameters(params or {}, dtype=dtype, memory_format=memory_format, phase=phase),
            phase=_first_phase(phase),
            tags=tuple(tags),
            doc=(factory.__doc__ or "").strip().split("\n")[0],
        )
        if spec.name in declared and declared[spec.name].factory is not factory:
            raise ConfigError(f"two benchmarks are named {spec.name!r}; give one of them another name=")
        declared[spec.name] = Declared(spec, factory)
        return factory

    return declare if function is None else declare(function)


def _first_phase(phase: str | Sequence[str]) -> Phase:
    first = phase if isinstance(phase, str) else next(iter(phase), "")
    try:
        return Phase(first)
    except ValueError:
        raise ConfigError(f"unknown phase {first!r}; choose from {', '.join(p.value for p in Phase)}") from None


def _parameters(
    params: Mapping[str, Sequence[ParameterValue]], **axes: str | Sequence[str] | None
) -> tuple[tuple[str, tuple[ParameterValue, ...]], ...]:
    chosen: dict[str, tuple[ParameterValue, ...]] = {}
    for key, values in params.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"parameter {key!r} needs a non-empty list of values, not {values!r}")
        chosen[key] = tuple(values)
    lists = {key: tuple(value) for key, value in axes.items() if value is not None and not isinstance(value, str)}
    return tuple({**chosen, **lists}.items())
