"""What the process knows of the program that it runs: modules and who learns, data loaders, denormal values.

Asked for between steps, never in one. A prepared case is looked at from its callable on, since other cases live in the
same process; a script, as everything that is alive.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence, Sized
from dataclasses import asdict
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple, cast

from perfguard.records.protocol import Message
from perfguard.records.steps.program import DenormalCount, ModuleFacts, ProgramFacts
from perfguard.worker.torch_env import flushes_denormals

MAX_OBJECTS = 200_000  # Objects after which a search ends; a program's own data may be any number of them
MAX_ENTRIES = 10_000  # Entries of a list or a mapping from which it is data, and not looked into
MAX_VALUES = 1 << 20  # Values of one tensor that are looked at for denormals, spread over all of it

_CLOSED = (ModuleType, type, CodeType, FrameType, BuiltinFunctionType, str, bytes, int, float, complex, bool)
"""Objects that lead to nothing of the program, or to all of it."""
_CONTAINERS = (list, tuple, dict, set, frozenset)
_LIBRARIES = ("torch", "numpy", "perfguard", "intel_extension_for_pytorch")


def reachable(roots: Iterable[object], kinds: tuple[type, ...]) -> list[Any]:
    """Objects of these kinds that the roots hold, in the order in which they are met, the nearest first.

    Of the names that a function's module knows, those that the function mentions are followed.
    """
    found: list[Any] = []
    seen: set[int] = set()
    level: list[object] = list(roots)
    while level and len(seen) < MAX_OBJECTS:
        below: list[object] = []
        for item in level:
            if id(item) in seen or is_kind(item, _CLOSED):
                continue
            seen.add(id(item))
            if is_kind(item, kinds):
                found.append(item)
            below += _held_by(item)
        level = below
    return found


def everywhere(kinds: tuple[type, ...]) -> list[Any]:
    """All living objects of these kinds, the oldest first as far as the collector knows."""
    return [item for item in gc.get_objects() if is_kind(item, kinds)]


def is_kind(item: object, kinds: tuple[type, ...]) -> bool:
    """Whether an object is of these by its real class: proxies tell isinstance another, and may import it for that."""
    return issubclass(type(item), kinds)


def _held_by(item: object) -> Sequence[object]:
    if is_kind(item, (FunctionType,)):
        return _held_by_function(item)
    if is_kind(item, _CONTAINERS) and len(cast("Sized", item)) > MAX_ENTRIES:
        return ()
    return gc.get_referents(item)


def _held_by_function(function: Any) -> list[object]:
    if (function.__module__ or "").partition(".")[0] in _LIBRARIES:
        named: list[object] = []
    else:
        names = function.__code__.co_names
        named = [function.__globals__[name] for name in names if name in function.__globals__]
    held = (function.__closure__, function.__defaults__, function.__kwdefaults__, function.__dict__)
    return [*(each for each in held if each), *named]


_COMPILED_PART = "_orig_mod"
"""What torch.compile calls the module that it wraps; no part of names, as in traces."""


def answer(roots: Sequence[object] | None) -> Message:
    """The facts as fields of a reply; `perfguard.records.steps.program.ProgramFacts` is their type."""
    return asdict(facts_of(roots))


def facts_of(roots: Sequence[object] | None) -> ProgramFacts:
    """What is known of the program that these callables run; None looks at all that is alive."""
    import torch

    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.utils.data.DataLoader)
    found = everywhere(kinds) if roots is None else reachable(roots, kinds)
    parts, optimizers, loaders = ([item for item in found if is_kind(item, (kind,))] for kind in kinds)
    modules = _named_modules(parts)
    updated = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    return ProgramFacts(
        modules=tuple(
            _module_facts(path, module, updated)
            for path, module in modules
            if [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        ),
        optimizers=tuple(sorted(type(optimizer).__name__ for optimizer in optimizers)),
        loader_workers=tuple(loader.num_workers for loader in loaders),
        denormals=count_denormals(_kept_tensors(modules, optimizers)),
        flushes_denormals=flushes_denormals(torch),
    )


def _named_modules(modules: Sequence[Any]) -> list[tuple[str, Any]]:
    """Every module with its path from the outermost one that holds it, in the order of registration."""
    modules = list({id(module): module for module in map(_unwrapped, modules)}.values())
    held = {id(part) for module in modules for part in module.modules() if part is not module}
    named: dict[int, tuple[str, Any]] = {}
    for root in (module for module in modules if id(module) not in held):
        for path, module in root.named_modules():
            parts = (type(root).__name__, *(part for part in path.split(".") if part not in {"", _COMPILED_PART}))
            named.setdefault(id(module), (".".join(parts), module))
    return list(named.values())


def _unwrapped(module: Any) -> Any:
    """The module that torch.compile wraps; any other one itself."""
    return getattr(module, _COMPILED_PART) if type(module).__name__ == "OptimizedModule" else module


def _module_facts(path: str, module: Any, updated: set[int]) -> ModuleFacts:
    own = list(module.parameters(recurse=False))
    trainable = [parameter for parameter in own if parameter.requires_grad]
    return ModuleFacts(
        path=path,
        kind=type(module).__name__,
        parameters=len(own),
        trainable=len(trainable),
        updated=sum(id(parameter) in updated for parameter in trainable),
    )


def _kept_tensors(modules: Iterable[tuple[str, Any]], optimizers: Sequence[Any]) -> dict[str, Sequence[NamedTensor]]:
    """What stays from step to step, by kind; parameters also where an optimizer alone holds them."""
    known: dict[int, NamedTensor] = {}
    for path, module in modules:
        for name, parameter in module.named_parameters(recurse=False):
            known.setdefault(id(parameter), NamedTensor(f"{path}.{name}", parameter))
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        for parameter in group["params"]:
            known.setdefault(id(parameter), NamedTensor("a parameter", parameter))
    parameters = list(known.values())
    return {
        "parameters": parameters,
        "gradients": [
            NamedTensor(name, tensor.grad) for name, tensor in parameters if tensor.is_leaf and tensor.grad is not None
        ],
        "optimizer state": state_of(optimizers, {key: each.name for key, each in known.items()}),
    }


def state_of(optimizers: Iterable[Any], names: dict[int, str]) -> list[NamedTensor]:
    """Tensors that optimizers keep for their parameters, whose names are given by their id."""
    import torch

    return [
        NamedTensor(f"{key} of {names.get(id(parameter), 'a parameter')}", value)
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        if isinstance(state, dict)
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    ]


_BITS = {
    "torch.float32": ("int32", 0x7F80_0000, 0x007F_FFFF),
    "torch.float64": ("int64", 0x7FF0_0000_0000_0000, 0x000F_FFFF_FFFF_FFFF),
    "torch.bfloat16": ("int16", 0x7F80, 0x007F),
}
"""torch's integers of the same size, and masks of the exponent, which is 0 in denormals, and the fraction, which is
not. Source: IEEE 754; bfloat16 is the upper half of f32. Bits work where the processor rounds denormals to zero. f16 is
passed over: what is denormal there is an ordinary number once it is converted."""


class NamedTensor(NamedTuple):
    """A tensor and what to call it."""

    name: str  # `Net.conv1.weight`
    tensor: Any


def count_denormals(groups: dict[str, Sequence[NamedTensor]]) -> tuple[DenormalCount, ...]:
    """Count in each group; groups without a single value are left out. Belongs between steps, never into one."""
    import torch

    with torch.no_grad():
        counts = [_count(group, tensors) for group, tensors in groups.items()]
    return tuple(count for count in counts if count.values)


def _count(group: str, tensors: Sequence[NamedTensor]) -> DenormalCount:
    values = denormals = 0
    worst, worst_ratio = "", 0.0
    for name, tensor in tensors:
        looked_at, found = _count_in(tensor)
        values, denormals = values + looked_at, denormals + found
        if found and found / looked_at > worst_ratio:
            worst, worst_ratio = name, found / looked_at
    return DenormalCount(group=group, values=values, denormals=denormals, worst=worst)


def _count_in(tensor: Any) -> tuple[int, int]:
    """How many values were looked at, and how many of them are denormal."""
    import torch

    integers, exponent, fraction = _BITS.get(str(tensor.dtype), ("", 0, 0))
    if not integers or tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return 0, 0
    try:
        values = _sample(tensor.detach().view(getattr(torch, integers)))
    except (RuntimeError, NotImplementedError):  # a subclass of tensors that has no memory of its own
        return 0, 0
    denormal = ((values & exponent) == 0) & ((values & fraction) != 0)
    return values.numel(), int(denormal.sum())


def _sample(values: Any) -> Any:
    """About `MAX_VALUES` of the values at most: every so many along the longest dimension, as a view."""
    step = -(-values.numel() // MAX_VALUES)
    longest = max(range(values.dim()), key=lambda dimension: values.shape[dimension], default=0)
    return values if step == 1 else values[(slice(None),) * longest + (slice(None, None, step),)]
