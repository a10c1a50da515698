"""Events around the calls of modules, so that a trace shows where in the model an op belongs.

Global forward hooks open an event `module:ResNet.layer1.0.conv1` before `forward` and close it afterwards. A module is
named by its path from the outermost module that is known to hold it. What is known grows while the program runs: a part
that is called before its whole is a root of its own until then, hence the unrecorded calls before the first step.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from perfguard.records.protocol import MODULE_PREFIX

_COMPILED_WRAPPER, _COMPILED_PART = "OptimizedModule", "_orig_mod"
"""Class that torch.compile wraps a module in, and its name for what it wraps; neither has an event or a part in names,
so that compiling changes none."""


def annotation_type() -> Callable[[str], AbstractContextManager[Any]]:
    """What makes an event of a name; costs next to nothing while no profiler runs."""
    import torch

    # The public one goes through the dispatcher: it takes 20 times as long, with a profiler and without.
    fast: Any = getattr(torch._C._profiler, "_RecordFunctionFast", None)  # noqa: SLF001 - there is no other way to it
    return torch.profiler.record_function if fast is None else fast


class ModuleHooks:
    """The hooks and the modules that are being called."""

    def __init__(self) -> None:
        self._names = _Names()
        self._calls = threading.local()
        self._handles: list[Any] = []

    def install(self) -> None:
        """See every call of every module from now on; a second time does nothing."""
        if self._handles:
            return
        from torch.nn.modules import module

        self._handles = [
            module.register_module_forward_pre_hook(self._entering()),
            module.register_module_forward_hook(self._leaving(), always_call=True),
        ]

    def remove(self) -> None:
        """End all events and see no further calls."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.close()

    def close(self) -> None:
        """End the events of this thread that are still open.

        There are some where `forward` was left by something other than an Exception, or ran half compiled.
        """
        stack = self._stack()
        while stack:
            stack.pop().annotation.__exit__(None, None, None)

    def _stack(self) -> list[_Call]:
        stack: list[_Call] = self._calls.__dict__.setdefault("stack", [])
        return stack

    # Functions that close over what they need, with the test for a compiler first: Dynamo traces hooks, too, and must
    # find nothing in them that it would have to guard or to break a graph for.

    def _entering(self) -> Callable[..., None]:
        import torch

        is_compiling, stack_of = torch.compiler.is_compiling, self._stack
        annotate, place_of = annotation_type(), self._names.place

        def enter(module: Any, _arguments: object) -> None:
            if is_compiling():
                return
            if type(module).__name__ == _COMPILED_WRAPPER:
                return
            stack = stack_of()
            place = place_of(module, stack)
            annotation = annotate(place.name)
            annotation.__enter__()
            stack.append(_Call(module, place.root, annotation))

        return enter

    def _leaving(self) -> Callable[..., None]:
        import torch

        is_compiling, stack_of = torch.compiler.is_compiling, self._stack

        def leave(module: Any, _arguments: object, _result: object) -> None:
            if is_compiling():
                return
            stack = stack_of()
            # Calls above it on the stack were left in a way that no hook saw.
            for depth in range(len(stack) - 1, -1, -1):
                if stack[depth].module is module:
                    while len(stack) > depth:
                        stack.pop().annotation.__exit__(None, None, None)
                    return

        return leave


class _Call(NamedTuple):
    """A module that is being called."""

    module: Any
    root: _Root
    annotation: AbstractContextManager[Any]


class _Place(NamedTuple):
    """Where a module is in its root; does not keep it alive."""

    target: weakref.ref[Any]
    root: _Root
    name: str


class _Root:
    """A module that is part of no other known one, with the names of its parts."""

    def __init__(self, module: Any) -> None:
        self.target = weakref.ref(module)
        self.places: dict[int, _Place] = {}
        self.learn()

    def learn(self) -> None:
        """Name the parts as they are now; a part at several places goes by the first."""
        module = self.target()
        if module is None:
            return
        for path, part in module.named_modules():
            names = (type(module).__name__, *(name for name in path.split(".") if name not in {"", _COMPILED_PART}))
            self.places[id(part)] = _Place(weakref.ref(part), self, MODULE_PREFIX + ".".join(names))

    def place_of(self, module: Any) -> _Place | None:
        """Where a module is; None where it is no part of this root."""
        return _living(self.places.get(id(module)), module)


class _Names:
    """Where modules are, as far as it is known."""

    def __init__(self) -> None:
        self._homes: dict[int, _Place] = {}

    def place(self, module: Any, stack: list[_Call]) -> _Place:
        """Where a module is, which is being called from those on the stack.

        A module that is part of several roots goes by the one that calls it; one that nobody holds is a root.
        """
        place = stack[-1].root.place_of(module) if stack else None
        if place is not None:
            return place
        for call in reversed(stack):
            if any(part is module for part in call.module._modules.values()):  # noqa: SLF001 - without recursion
                call.root.learn()  # a part that was added since
            place = call.root.place_of(module)
            if place is not None:
                return place
        home = _living(self._homes.get(id(module)), module)
        return self._new_root(module) if home is None else home

    def _new_root(self, module: Any) -> _Place:
        """Make a root known to its parts, but for those that another whole has."""
        root = _Root(module)
        for part_id, place in root.places.items():
            home = _living(self._homes.get(part_id), place.target())
            whole = None if home is None else home.root.target()
            if whole is None or root.place_of(whole) is not None:
                self._homes[part_id] = place
        return root.places[id(module)]


def _living(place: _Place | None, module: Any) -> _Place | None:
    """A place, where it is really this module's: ids are used again."""
    return place if place is not None and place.target() is module else None
