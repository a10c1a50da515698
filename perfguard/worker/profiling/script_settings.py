"""Settings of a user's script made from outside: autocast, memory format, implementation of optimizers.

The script stays unchanged. What it calls of torch is wrapped while it runs:

- `Module.__call__` sees the outermost call of a module, which is a forward pass. Before it, with `channels_last`, the
  module's 4-D parameters are converted once, in place, and the 4-D images among the arguments each time; with `bf16`
  autocast begins.
- `torch.autograd.backward` and `grad` end autocast, so that the loss is computed under it and the gradients are not.
  Without gradients (validation) autocast ends with the forward pass.
- The constructors of torch's optimizers get `foreach` and `fused` where the script gives neither.

What a script chooses itself is left alone and counted: an autocast region around its forward pass, `foreach` or `fused`
of an optimizer. Modules that are called only inside code that `torch.compile` traces are not seen.

Source: https://docs.pytorch.org/docs/stable/amp.html for where autocast begins and ends.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from perfguard.records.script_settings import AS_WRITTEN, SettingUse
from perfguard.worker.cases import PARAMETERS_VARIABLE

_DTYPES = {"bf16": "bfloat16"}
_IMPLEMENTATIONS = {"for-loop": (False, False), "foreach": (True, False), "fused": (False, True)}
_IMAGES = 4  # Dimensions of a batch of images, and of the weight of a convolution


class ScriptSettings:
    """The settings of the arm, and what became of each."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self.chosen = dict(chosen)
        self._changed: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._unable: Counter[str] = Counter()
        self._place = (os.getpid(), threading.get_ident())
        self._forward = self._backward = False  # Whether a forward pass is running, and whether gradients are computed
        self._beginners: weakref.WeakSet[Any] = weakref.WeakSet()  # Modules whose forward pass has begun autocast
        self._autocast: Any = None  # The open region
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._converted: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    @classmethod
    def of_arm(cls) -> ScriptSettings:
        """Those in the environment of this process."""
        return cls(json.loads(os.environ.get(PARAMETERS_VARIABLE) or "{}"))

    def uses(self) -> list[SettingUse]:
        """What became of each setting so far."""
        return [
            SettingUse(
                name=name, value=value, changed=self._changed[name], kept=self._kept[name], unable=self._unable[name]
            )
            for name, value in sorted(self.chosen.items())
        ]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Make the settings while entered; nothing is wrapped for a setting that leaves a script as it is."""
        active = {name: value for name, value in self.chosen.items() if (name, value) not in AS_WRITTEN}
        with ExitStack() as undoing:
            if "optimizer" in active or "memory_format" in active:
                self._wrap_optimizers(undoing, active.get("optimizer"))
            if "dtype" in active or "memory_format" in active:
                self._wrap_forward(undoing, active)
            if "dtype" in active:
                self._wrap_autograd(undoing)
            undoing.callback(self.end_autocast)
            yield

    def end_autocast(self) -> None:
        """End the region that is open; at the latest where a step ends."""
        region, self._autocast = self._autocast, None
        if region is not None:
            region.__exit__(None, None, None)

    def _is_elsewhere(self) -> bool:
        """Whether this is a forked process or another thread, where nothing is changed."""
        return self._place != (os.getpid(), threading.get_ident())

    # Forward passes

    def _wrap_forward(self, undoing: ExitStack, active: Mapping[str, str]) -> None:
        import torch

        dtype, is_channels_last = _DTYPES.get(active.get("dtype", "")), "memory_format" in active
        call, is_compiling = torch.nn.Module.__call__, torch.compiler.is_compiling

        # A compiler that traces this must find nothing that it would have to break a graph for, hence the first test.
        @functools.wraps(call)
        def call_of_module(module: Any, *arguments: Any, **named: Any) -> Any:
            if is_compiling() or self._forward or self._is_elsewhere():
                return call(module, *arguments, **named)
            self._forward = True
            try:
                if is_channels_last and self._convert(module):
                    arguments, named = _images_last(arguments), _images_last(named)
                is_scoped = dtype is not None and self._begin_autocast(module, dtype)
                try:
                    return call(module, *arguments, **named)
                finally:
                    if is_scoped:
                        self.end_autocast()
            finally:
                self._forward = False

        torch.nn.Module.__call__ = call_of_module  # type: ignore[method-assign]
        undoing.callback(setattr, torch.nn.Module, "__call__", call)

    def _begin_autocast(self, module: Any, dtype: str) -> bool:
        """Begin autocast for a forward pass where the script has not; gives whether it ends with this pass."""
        import torch

        if self._backward:
            # A checkpoint computes this again, which knows no autocast that has begun inside of it.
            if module in self._beginners and not torch.is_autocast_enabled("cpu"):
                self._open(dtype)
                return True
            return False
        if self._autocast is not None:
            self._changed["dtype"] += 1
            return False
        if next(module.parameters(), None) is None:  # a loss or a transform: autocast begins with a network
            return False
        if torch.is_autocast_enabled("cpu"):
            self._kept["dtype"] += 1
            return False
        self._changed["dtype"] += 1
        self._beginners.add(module)
        self._open(dtype)
        return not torch.is_grad_enabled()

    def _open(self, dtype: str) -> None:
        import torch

        self._autocast = torch.autocast("cpu", dtype=getattr(torch, dtype))
        self._autocast.__enter__()

    def _convert(self, module: Any) -> bool:
        """Convert a module's parameters where that has not been done; gives whether it has any of images."""
        if module in self._converted:
            return self._converted[module]
        import torch

        parameters = list(module.parameters())
        if any(map(torch.nn.parameter.is_lazy, parameters)):  # they get their shapes in the first forward pass
            return False
        weights = [weight for weight in parameters if weight.dim() == _IMAGES]
        known = self._converted[module] = bool(weights)
        if not known:
            return False
        is_new = any(not _is_last(weight) for weight in weights)
        for weight in weights:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
            if weight.grad is not None:
                weight.grad.data = weight.grad.data.contiguous(memory_format=torch.channels_last)
        for optimizer in tuple(self._optimizers):
            _convert_state(optimizer)
        if is_new:
            self._changed["memory_format"] += 1
        elif not self._changed["memory_format"]:  # else it may be a part of what was converted
            self._kept["memory_format"] += 1
        return True

    # Gradients

    def _wrap_autograd(self, undoing: ExitStack) -> None:
        import torch

        for name in ("backward", "grad"):
            compute = getattr(torch.autograd, name)
            setattr(torch.autograd, name, self._without_autocast(compute))
            undoing.callback(setattr, torch.autograd, name, compute)

    def _without_autocast(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        from torch.compiler import is_compiling

        @functools.wraps(compute)
        def compute_without_autocast(*arguments: Any, **named: Any) -> Any:
            if is_compiling() or self._forward or self._backward or self._is_elsewhere():
                return compute(*arguments, **named)
            self.end_autocast()
            self._backward = True
            try:
                return compute(*arguments, **named)
            finally:
                self._backward = False

        return compute_without_autocast

    # Optimizers

    def _wrap_optimizers(self, undoing: ExitStack, implementation: str | None) -> None:
        import torch

        for kind in {each for each in vars(torch.optim).values() if _is_optimizer(each)}:
            construct = kind.__init__
            kind.__init__ = self._constructor(construct, implementation)
            undoing.callback(setattr, kind, "__init__", construct)

    def _constructor(self, construct: Callable[..., None], implementation: str | None) -> Callable[..., None]:
        signature = inspect.signature(construct)
        choice: dict[str, bool] = {}
        if implementation is not None:
            choice = dict(zip(("foreach", "fused"), _IMPLEMENTATIONS[implementation], strict=True))
        has_choice = all(name in signature.parameters or not wanted for name, wanted in choice.items())
        choice = {name: wanted for name, wanted in choice.items() if name in signature.parameters}

        @functools.wraps(construct)
        def construct_with_choice(optimizer: Any, *arguments: Any, **named: Any) -> None:
            if optimizer in self._optimizers or self._is_elsewhere():  # of a class that another one calls
                construct(optimizer, *arguments, **named)
                return
            self._optimizers.add(optimizer)
            given = signature.bind(optimizer, *arguments, **named).arguments
            is_own = any(given.get(name) is not None for name in ("foreach", "fused"))
            if implementation is None or is_own or not (has_choice and choice):
                construct(optimizer, *arguments, **named)
                if implementation is not None:
                    (self._kept if is_own else self._unable)["optimizer"] += 1
            else:
                self._construct(construct, optimizer, arguments, named, choice)
            optimizer.register_load_state_dict_post_hook(_convert_state)

        return construct_with_choice

    def _construct(
        self,
        construct: Callable[..., None],
        optimizer: Any,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        choice: dict[str, bool],
    ) -> None:
        """Construct an optimizer with this choice, or as the script wants it where it cannot have it."""
        # An iterator would be used up by a first try that fails.
        arguments = tuple(list(each) if isinstance(each, Iterator) else each for each in arguments)
        named = {name: list(each) if isinstance(each, Iterator) else each for name, each in named.items()}
        try:
            construct(optimizer, *arguments, **{**named, **choice})
        except (RuntimeError, ValueError):
            construct(optimizer, *arguments, **named)
            self._unable["optimizer"] += 1
            return
        self._changed["optimizer"] += 1

        def choose_again(loaded: Any) -> None:  # a checkpoint brings the choices of the run that wrote it
            for group in loaded.param_groups:
                group.update(choice)

        optimizer.register_load_state_dict_post_hook(choose_again)


def _is_optimizer(kind: object) -> bool:
    import torch

    return isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer


def _is_last(tensor: Any) -> bool:
    import torch

    return bool(tensor.is_contiguous(memory_format=torch.channels_last))


def _images_last(value: Any) -> Any:
    """The value with the batches of images in it, in lists and dictionaries too, in channels_last."""
    import torch

    if isinstance(value, torch.Tensor):
        is_image = value.dim() == _IMAGES and value.is_floating_point()
        return value.contiguous(memory_format=torch.channels_last) if is_image else value
    if type(value) in (list, tuple):
        return type(value)(map(_images_last, value))
    if type(value) is dict:
        return {name: _images_last(each) for name, each in value.items()}
    return value


def _convert_state(optimizer: Any) -> None:
    """Give an optimizer's moments the layout of their weights: kernels that update all at once need the same."""
    import torch

    for weight, state in optimizer.state.items():
        if weight.dim() == _IMAGES and _is_last(weight):
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim() == _IMAGES:
                    state[name] = value.contiguous(memory_format=torch.channels_last)
