"""Primitives of a verbose log as command lines of benchdnn, oneDNN's own benchmark.

Options as in oneDNN's documentation (`tests/benchdnn/doc`), and as its own converter of logs chooses them
(`scripts/verbose_converter`, Apache-2.0; none of its code is used): a layout that oneDNN chose is left to it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfguard.profile.libraries.benchdnn_output import OUTPUT_TEMPLATE
from perfguard.profile.libraries.memory_descriptors import MemoryDescriptor, memory_descriptors
from perfguard.profile.libraries.primitive_problems import PrimitiveProblem

DEFAULT_BUDGET_S = 0.1
"""Seconds that one problem is timed for; benchdnn takes 10 ms to 60 s."""

_MS_PER_S = 1e3
_SHORTEST_MS = 10


class UnsupportedPrimitiveError(Exception):
    """A primitive cannot be told to benchdnn; the message is a sentence whose subject is the primitive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Driver:
    """How benchdnn wants one kind of primitive."""

    name: str
    """Without the dashes."""
    types: Callable[[Sequence[MemoryDescriptor]], list[str]]
    """Options for dtypes."""
    layouts: Callable[[Sequence[MemoryDescriptor]], list[str]]
    """Options for layouts."""
    extras: tuple[str, ...] = ()
    """Names of auxiliary fields that become options, `alg:relu` to `--alg=relu`."""


def benchdnn_options(problem: PrimitiveProblem, *, budget_s: float = DEFAULT_BUDGET_S) -> list[str]:
    """The command line for one problem, to measure how fast it is (mode P).

    Raises:
        UnsupportedPrimitiveError: It cannot be said in benchdnn's words.
    """
    driver = _DRIVERS.get(problem.primitive)
    if driver is None:
        raise UnsupportedPrimitiveError(f"it is a {problem.primitive}, for which benchdnn's options are not known")
    try:
        tensors = memory_descriptors(problem.memory)
    except ValueError as error:
        raise UnsupportedPrimitiveError(f"it is logged in an unknown way: {error}") from error
    return [
        f"--{driver.name}",
        "--mode=P",
        f"--max-ms-per-prb={max(_SHORTEST_MS, round(budget_s * _MS_PER_S))}",
        f"--perf-template={OUTPUT_TEMPLATE}",
        "--allow-enum-tags-only=0",
        f"--engine={problem.engine or 'cpu'}",
        *_direction(problem, tensors),
        *driver.types(tensors),
        *driver.layouts(tensors),
        *_extras(problem.auxiliary, driver.extras),
        *_attributes(problem.attributes),
        problem.problem.split()[0] if problem.problem else "",
    ]


def _direction(problem: PrimitiveProblem, tensors: Sequence[MemoryDescriptor]) -> list[str]:
    direction = "FWD_I" if problem.prop_kind == "forward_inference" else problem.direction
    if not direction:
        return []
    if problem.primitive == "rnn":
        return [f"--prop={problem.direction}"]
    if any(tensor.argument == "bia" and tensor.is_used for tensor in tensors):
        direction = {"FWD_D": "FWD_B", "FWD_I": "FWD_B", "BWD_W": "BWD_WB"}.get(direction, direction)
    return [f"--dir={direction}"]


def _of(tensors: Sequence[MemoryDescriptor], argument: str) -> list[MemoryDescriptor]:
    return [tensor for tensor in tensors if tensor.argument == argument and tensor.is_used]


def _joined_types(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    """`--dt=SRC:WEI:DST`, without those that there are not."""
    found = [tensor.dtype for argument in ("src", "wei", "dst") for tensor in _of(tensors, argument)[:1]]
    return [f"--dt={':'.join(found)}"]


def _matmul_types(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    options = _joined_types(tensors)
    for bias in _of(tensors, "bia")[:1]:
        options.append(f"--bia_dt={bias.dtype}")
        mask = re.search(r"_mask(\d+)", bias.flags)
        options += [f"--bia_mask={mask[1]}"] if mask else []
    return options


def _one_type(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    return [f"--dt={next((tensor.dtype for tensor in tensors if tensor.is_used), 'f32')}"]


def _types_each(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    """`--sdt=` and `--ddt=`, several sources joined."""
    sources, results = _of(tensors, "src"), _of(tensors, "dst")
    return [
        f"--{letter}dt={':'.join(tensor.dtype for tensor in found)}"
        for letter, found in (("s", sources), ("d", results))
        if found
    ]


def _one_source_type(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    return _types_each([*_of(tensors, "src")[:1], *_of(tensors, "dst")[:1]])


def _layouts_each(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    """`--stag=`, `--wtag=` and `--dtag=`, several sources joined."""
    options = []
    for letter, argument in (("s", "src"), ("w", "wei"), ("d", "dst")):
        found = _of(tensors, argument)
        if found:
            options.append(f"--{letter}tag={':'.join(tensor.tag for tensor in found)}")
    return options


def _layouts_or_strides(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    """The same, with strides for those that a tag does not tell."""
    arguments = ("src", "wei", "dst") if _of(tensors, "wei") else ("src", "dst")
    strides, tagged = [], []
    for argument in arguments:
        for tensor in _of(tensors, argument)[:1]:
            has_strides = bool(tensor.strides) and tensor.tag != "any" and not tensor.is_blocked
            strides.append(tensor.strides if has_strides else "")
            tagged += [] if has_strides else [tensor]
    return [*_layouts_each(tagged), *([f"--strides={':'.join(strides)}"] if any(strides) else [])]


def _one_layout(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    tags = (tensor.tag for tensor in tensors if tensor.is_used and tensor.tag)
    return [f"--tag={tag}" for tag in list(tags)[:1]]


def _source_and_result_layout(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    tags = [tensor.tag for argument in ("src", "dst") for tensor in _of(tensors, argument)[:1]]
    statistics = [f"--stat_tag={tensor.tag}" for tensor in _of(tensors, "stats")[:1]]
    return [f"--tag={':'.join(tags)}", *statistics]


def _rnn_types(tensors: Sequence[MemoryDescriptor]) -> list[str]:
    """`--cfg=`, which names a whole set of dtypes."""
    data = {tensor.dtype for tensor in tensors if tensor.argument.startswith(("src", "dst")) and tensor.is_used}
    if len(data) != 1:
        raise UnsupportedPrimitiveError("it mixes dtypes in a way that benchdnn has no configuration for")
    (dtype,) = data
    bias = next((tensor.dtype for tensor in _of(tensors, "bias")), dtype)
    return [f"--cfg={dtype}{bias if bias != dtype else ''}"]


def _rnn_layouts(_tensors: Sequence[MemoryDescriptor]) -> list[str]:
    return ["--trivial-strides=true"]


_DRIVERS: Mapping[str, _Driver] = {
    "convolution": _Driver(name="conv", types=_joined_types, layouts=_layouts_each, extras=("alg",)),
    "deconvolution": _Driver(name="deconv", types=_joined_types, layouts=_layouts_each, extras=("alg",)),
    "inner_product": _Driver(name="ip", types=_joined_types, layouts=_layouts_each),
    "matmul": _Driver(name="matmul", types=_matmul_types, layouts=_layouts_or_strides),
    "reorder": _Driver(name="reorder", types=_types_each, layouts=_layouts_or_strides),
    "eltwise": _Driver(name="eltwise", types=_one_type, layouts=_one_layout, extras=("alg", "alpha", "beta")),
    "batch_normalization": _Driver(name="bnorm", types=_one_type, layouts=_one_layout, extras=("flags",)),
    "layer_normalization": _Driver(
        name="lnorm", types=_joined_types, layouts=_source_and_result_layout, extras=("flags",)
    ),
    "pooling": _Driver(name="pool", types=_joined_types, layouts=_one_layout, extras=("alg",)),
    "softmax": _Driver(name="softmax", types=_types_each, layouts=_layouts_each, extras=("alg", "axis")),
    "binary": _Driver(name="binary", types=_types_each, layouts=_layouts_each, extras=("alg",)),
    "concat": _Driver(name="concat", types=_one_source_type, layouts=_layouts_each, extras=("axis",)),
    "sum": _Driver(name="sum", types=_types_each, layouts=_layouts_each),
    "rnn": _Driver(
        name="rnn", types=_rnn_types, layouts=_rnn_layouts, extras=("alg", "direction", "activation", "flags")
    ),
}
"""By oneDNN's word for the primitive."""
_VALUES: Mapping[str, Mapping[str, str]] = {
    "alg": {
        "convolution_direct": "direct",
        "convolution_winograd": "WINO",
        "convolution_auto": "auto",
        "deconvolution_direct": "direct",
        "deconvolution_winograd": "WINO",
        "vanilla_rnn": "VANILLA_RNN",
        "vanilla_lstm": "VANILLA_LSTM",
        "vanilla_gru": "VANILLA_GRU",
        "lbr_gru": "LBR_GRU",
    },
    "direction": {
        "unidirectional_left2right": "left2right",
        "unidirectional_right2left": "right2left",
        "bidirectional_sum": "sum",
        "bidirectional_concat": "concat",
    },
    "activation": {"eltwise_relu": "RELU", "eltwise_tanh": "TANH", "eltwise_logistic": "LOGISTIC"},
}
"""benchdnn's word for values of auxiliary fields, where it is another one."""


def _extras(auxiliary: str, names: Sequence[str]) -> list[str]:
    fields = dict(word.partition(":")[::2] for word in auxiliary.split())
    options = []
    for name in names:
        value = fields.get(name, "")
        if value not in {"", "undef"}:
            options.append(f"--{name}={_VALUES.get(name, {}).get(value, value.removeprefix('binary_'))}")
    return options


_SAME_SYNTAX = ("attr-scratchpad", "attr-fpmath", "attr-deterministic", "attr-acc-mode", "attr-post-ops")
_SAME_POST_OPS = re.compile(r"(?:eltwise|sum|binary)[^+]*(?:\+(?:eltwise|sum|binary)[^+]*)*")


def _attributes(text: str) -> list[str]:
    """Attributes whose syntax is the same in a log and in benchdnn; those of quantisation are not."""
    options = []
    for word in text.split():
        name, _, value = word.partition(":")
        if name not in _SAME_SYNTAX or (name == "attr-post-ops" and not _SAME_POST_OPS.fullmatch(value)):
            raise UnsupportedPrimitiveError(f"it has the attribute {word!r}, which is not translated for benchdnn")
        options.append(f"--{name}={value}")
    return options
