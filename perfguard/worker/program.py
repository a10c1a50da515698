"""What the process knows of the program that it runs: modules and who learns, data loaders, denormal values.

Asked for between steps, never in one. A prepared case is looked at from its callable on, since other cases live in the
same process; a script, as everything that is alive.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence, Sized
from dataclasses import asdict
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, cast

from perfguard.records.protocol import Message
from perfguard.records.steps.program import ModuleFacts, ProgramFacts
from perfguard.worker.denormals import NamedTensor, count_denormals, flushes_denormals, state_of

MAX_OBJECTS = 200_000
"""Objects after which a search ends; a program's own data may be any number of them."""
MAX_ENTRIES = 10_000
"""Entries of a list or a mapping from which it is data, and not looked into."""

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
    """The facts as fields of a reply; `perfguard.records.steps.program.ProgramFacts` is their type.

    Args:
        roots: The callables to start from; None looks at all that is alive.
    """
    return asdict(facts_of(roots))


def facts_of(roots: Sequence[object] | None) -> ProgramFacts:
    """What is known of the program that these callables run."""
    import torch

    loader = torch.utils.data.DataLoader
    kinds = (torch.nn.Module, torch.optim.Optimizer, loader)
    found = everywhere(kinds) if roots is None else reachable(roots, kinds)
    optimizers = [item for item in found if is_kind(item, (torch.optim.Optimizer,))]
    modules = _named_modules([item for item in found if is_kind(item, (torch.nn.Module,))])
    updated = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    return ProgramFacts(
        modules=tuple(_module_facts(path, module, updated) for path, module in modules if _has_own_tensors(module)),
        optimizers=tuple(sorted(type(optimizer).__name__ for optimizer in optimizers)),
        loader_workers=tuple(item.num_workers for item in found if is_kind(item, (loader,))),
        denormals=count_denormals(_kept_tensors(modules, optimizers)),
        flushes_denormals=flushes_denormals(),
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


def _has_own_tensors(module: Any) -> bool:
    return any(True for _ in module.parameters(recurse=False)) or any(True for _ in module.buffers(recurse=False))


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
    parameters: dict[int, NamedTensor] = {}
    for path, module in modules:
        for name, parameter in module.named_parameters(recurse=False):
            parameters.setdefault(id(parameter), NamedTensor(name=f"{path}.{name}", tensor=parameter))
    for optimizer in optimizers:
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            parameters.setdefault(id(parameter), NamedTensor(name="a parameter", tensor=parameter))
    named = list(parameters.values())
    return {
        "parameters": named,
        "gradients": [NamedTensor(name=each.name, tensor=each.tensor.grad) for each in named if _has_gradient(each)],
        "optimizer state": state_of(optimizers, {key: each.name for key, each in parameters.items()}),
    }


def _has_gradient(named: NamedTensor) -> bool:
    return named.tensor.is_leaf and named.tensor.grad is not None
