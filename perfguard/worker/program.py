"""What the process knows of the program that it runs: modules and who learns, data loaders, denormal values.

Asked for between steps, never in one. A prepared case is looked at from its callable on, since other cases live in the
same process; a script, as everything that is alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from perfguard.records.protocol import Message
from perfguard.records.steps.program import ModuleFacts, ProgramFacts
from perfguard.worker.denormals import NamedTensor, count_denormals, flushes_denormals, state_of
from perfguard.worker.reachable import everywhere, is_kind, reachable

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
