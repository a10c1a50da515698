"""What the names of events say: what part of a step begins, in which module, at which line."""

from __future__ import annotations

import re
import sys
from enum import IntEnum

from perfguard.records.protocol import LINE_PREFIX, MODULE_PREFIX, STEP_WINDOW

PROFILER_STEP = "ProfilerStep#"
"""How the windows begin that a profiler with a schedule records: `ProfilerStep#5`."""
FRAME_OF_MODULE = "nn.Module: "  # How the frames of modules begin: `nn.Module: Conv2d_0`

GENERATED_FUNCTION = "GeneratedBackwardFor_"
"""How the functions begin that torch makes of custom ops with a gradient: `GeneratedBackwardFor_NAMESPACE_OP_OVERLOAD`.
In the backward the same ends in `Backward`."""


class EventRole(IntEnum):
    """What an event begins; what lies in it belongs to that, too."""

    NONE = 0  # Nothing: an op, or an annotation of the program's own
    STEP = 1
    MODULE = 2  # A call of a module
    LOSS_MODULE = 3  # A call of a module that computes a loss
    LOSS_OP = 4  # An op that computes a loss
    GRADIENT = 5  # The backward of one op
    UPDATE = 6  # An optimizer's step
    ZERO_GRAD = 7  # An optimizer that forgets gradients, which it may do anywhere in a step
    LOADER = 8  # A data loader that makes the next batch


_UPDATE_PREFIX = "Optimizer.step#"
_ZERO_GRAD_PREFIX = "Optimizer.zero_grad#"
_ROLE_OF_PREFIX = {
    MODULE_PREFIX: EventRole.MODULE,
    "autograd::engine::evaluate_function: ": EventRole.GRADIENT,
    _UPDATE_PREFIX: EventRole.UPDATE,
    _ZERO_GRAD_PREFIX: EventRole.ZERO_GRAD,
    "enumerate(DataLoader)#": EventRole.LOADER,
    STEP_WINDOW: EventRole.STEP,
    PROFILER_STEP: EventRole.STEP,
}
_LOSS_OP = re.compile(r"^\w+::(?!.*backward).*(?:loss|nll|cross_entropy)")
_INSTANCE = re.compile(r"_\d+$")
_LINE = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): .+$")

_LIBRARY_FILE = re.compile(
    r"^<|^torch/|(?:^|/)(?:site-packages|dist-packages|lib/python3\.\d+|perfguard/worker|torchinductor_\w+)/"
)
_OFTEN_OF_USERS = {"code", "profile", "test", "trace"}
_STANDARD_LIBRARY = sys.stdlib_module_names - _OFTEN_OF_USERS
"""The profiler leaves out the folders on Python's path, so `typing.py` is the standard library's."""


def role_of(name: str) -> EventRole:
    """What an event of this name begins, window of a step or not."""
    for prefix, role in _ROLE_OF_PREFIX.items():
        if name.startswith(prefix):
            is_loss = role is EventRole.MODULE and name.endswith("Loss") and "." not in name
            return EventRole.LOSS_MODULE if is_loss else role
    return EventRole.LOSS_OP if _LOSS_OP.match(name) else EventRole.NONE


def role_of_frame(name: str) -> EventRole:
    """What a Python frame begins: `nn.Module: Conv2d_0` is a call of a module."""
    if not name.startswith(FRAME_OF_MODULE):
        return EventRole.NONE
    return EventRole.LOSS_MODULE if _INSTANCE.sub("", name).endswith("Loss") else EventRole.MODULE


def module_of(name: str) -> str:
    """The module in the name of an event: `ResNet.layer1.0`, an optimizer's class, else nothing."""
    for prefix in (_UPDATE_PREFIX, _ZERO_GRAD_PREFIX):
        if name.startswith(prefix):
            return name[len(prefix) :].partition(".")[0]
    for prefix in (MODULE_PREFIX, FRAME_OF_MODULE):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return ""


def source_of(name: str) -> str:
    """`train.py:88` for the mark of that line, or the frame `train.py(88): step`; empty for libraries and builtins.

    The line of a frame is where the function begins: the profiler names no other.
    """
    if name.startswith(LINE_PREFIX):
        return name.removeprefix(LINE_PREFIX)
    found = _LINE.match(name)
    if found is None or _LIBRARY_FILE.search(found["file"]):
        return ""
    if found["file"].partition("/")[0].removesuffix(".py") in _STANDARD_LIBRARY:
        return ""
    return f"{found['file']}:{found['line']}"
