"""Primitives of a verbose log, run alone by benchdnn, oneDNN's own benchmark: its command lines and what it prints.

Options as in oneDNN's documentation (`tests/benchdnn/doc`), and as its own converter of logs chooses them
(`scripts/verbose_converter`, Apache-2.0; none of its code is used): a layout that oneDNN chose is left to it again.
Output as in `knobs_perf_report.md` and `benchdnn_general_info.md` there: lines laid out by a template that it prints
first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from perfguard.profile.libraries.verbose import PrimitiveCall
from perfguard.records.facts import Fact, fact
from perfguard.records.steps.projection import Projected

DEFAULT_BUDGET_S = 0.1  # Seconds that one problem is timed for; benchdnn takes 10 ms to 60 s
_SHORTEST_MS = 10
OUTPUT_TEMPLATE = "perf,%engine%,%impl%,%0time%"  # What to ask for: the implementation, and the mean time in ms
_MEAN_TIME = "%0time%"
_WORDS = {_MEAN_TIME: r"(?P<mean_ms>\d+(?:\.\d+)?(?:e[+-]?\d+)?)", "%impl%": "(?P<impl>[^,]*)"}
_ANNOUNCEMENT = "Output template: "

_DTYPE = r"undef|bf16|tf32|f16|f32|f64|s4|u4|s8|u8|s32|s64|boolean|e8m0|f4_e\w+|f8_e\w+"
_DESCRIPTOR = re.compile(rf"(?P<argument>\w+?)[:_](?P<dtype>{_DTYPE}):(?P<rest>.*)", re.ASCII)
_FLAGS = re.compile(r"f\d")
_CHOSEN_BY_LIBRARY = "a"


class UnsupportedPrimitiveError(Exception):
    """A primitive has no benchdnn options; the message is a sentence whose subject is the primitive."""


class PrimitiveProblem(Struct, frozen=True, kw_only=True):
    """A primitive with its tensors and settings: equal executions of a step."""

    call: PrimitiveCall  # One of them
    implementations: tuple[str, ...]  # What oneDNN chose for it, sorted
    calls: float  # In a step
    observed_s: float  # Seconds of a step in all of them, as the library reports them


def primitive_problems(calls: Iterable[PrimitiveCall], *, steps: int = 1) -> tuple[PrimitiveProblem, ...]:
    """The unique problems that oneDNN executed, the longest first; seconds and counts are means over the steps."""
    problem_of = attrgetter("engine", "primitive", "prop_kind", "memory", "attributes", "auxiliary", "problem")
    found: dict[tuple[str, ...], list[PrimitiveCall]] = {}
    for call in calls:
        if call.executed and call.library == "onednn":
            found.setdefault(problem_of(call), []).append(call)
    problems = (
        PrimitiveProblem(
            call=same[0],
            implementations=tuple(sorted({call.implementation for call in same} - {""})),
            calls=len(same) / steps,
            observed_s=sum(call.time_s for call in same) / steps,
        )
        for same in found.values()
    )
    return tuple(sorted(problems, key=lambda each: (-each.observed_s, each.call.primitive, each.call.problem)))


def projected_primitive(
    problem: PrimitiveProblem, *, call_s: float | None, reason: Fact | None, implementation: str = ""
) -> Projected:
    """A primitive and its time alone: seconds of one execution, or the reason why it was not replayed.

    `implementation` is what was replayed; the step's own is named where it is another one.
    """
    others = [each for each in problem.implementations if implementation and each != implementation]
    return Projected(
        name=f"{problem.call.primitive} {problem.call.direction}".rstrip(),
        detail=problem.call.problem,
        phases=(),
        modules=(),
        calls=problem.calls,
        observed_s=problem.observed_s,
        projected_s=None if call_s is None else problem.calls * call_s,
        reason=reason,
        implementation=implementation or ", ".join(problem.implementations),
        assumed=tuple(f"implementation_in_step={each}" for each in others),
    )


class BenchdnnTime(NamedTuple):
    """Mean seconds of one execution of a problem and what oneDNN chose for it, or the reason why it was not run."""

    call_s: float | None
    implementation: str
    reason: Fact | None


def parse_benchdnn(output: str) -> BenchdnnTime:
    """Read what benchdnn printed of one problem."""
    template: re.Pattern[str] | None = None
    for line in output.splitlines():
        if line.startswith(_ANNOUNCEMENT):
            template = _pattern(line.removeprefix(_ANNOUNCEMENT).strip())
        found = template.fullmatch(line.strip()) if template else None
        if found:
            return BenchdnnTime(float(found["mean_ms"]) / 1e3, found.groupdict().get("impl") or "", None)
    status = re.search(r"^\d+:(?P<status>[A-Z_]+)(?: \((?P<why>[^)]*)\))?.*__REPRO", output, re.MULTILINE)
    if status is None:
        return BenchdnnTime(None, "", fact("replay.no_time"))
    words = status["status"].lower().replace("_", " ")
    return BenchdnnTime(None, "", fact("replay.status", status=words, why=status["why"]))


def _pattern(template: str) -> re.Pattern[str] | None:
    """What a line of this template looks like; None where it does not name the time."""
    parts = re.split(r"(%[^%]*%)", template)
    if _MEAN_TIME not in parts:
        return None
    looks = (_WORDS.get(part, ".*?") if part.startswith("%") else re.escape(part) for part in parts)
    return re.compile("".join(looks), re.ASCII)


class MemoryDescriptor(NamedTuple):
    """One tensor of a primitive."""

    argument: str  # `src`, `wei`, `bia`, `dst`, `src_layer`, …
    dtype: str  # `f32`; `undef` where it is not used
    tag: str  # Layout: `acdb`, `Acdb16a`, `any` where oneDNN chose it
    strides: str  # `8x4x1`; empty where the tag says it
    flags: str  # `f0`, `f0_mask2`, …


_Tensors = Sequence[MemoryDescriptor]


def memory_descriptors(text: str) -> Iterator[MemoryDescriptor]:
    """Memory descriptors of oneDNN as its verbose log writes them.

    `arg:dtype:properties:format_kind:tag:strides:flags` since oneDNN 3.7; before that `arg_dtype:properties:…`, and
    still earlier without strides. Source: `scripts/verbose_converter/src/parse.py` of oneDNN.

    Raises:
        UnsupportedPrimitiveError: One cannot be read; logs of MKL-DNN write others.
    """
    for word in text.split():
        found = _DESCRIPTOR.fullmatch(word)
        fields = found["rest"].split(":") if found else []
        if found is None or len(fields) < 3:
            raise UnsupportedPrimitiveError(
                f"it is logged in an unknown way: the memory descriptor {word!r} cannot be read"
            )
        properties, _, tag, *others = fields
        strides = others.pop(0) if others and not _FLAGS.match(others[0]) else ""
        tag = "any" if _CHOSEN_BY_LIBRARY in properties else tag
        yield MemoryDescriptor(found["argument"], found["dtype"], tag, strides, others[0] if others else "")


def benchdnn_options(problem: PrimitiveProblem, *, budget_s: float = DEFAULT_BUDGET_S) -> list[str]:
    """The command line for one problem, to measure how fast it is (mode P).

    Raises:
        UnsupportedPrimitiveError: benchdnn has no options for it.
    """
    call = problem.call
    driver = _DRIVERS.get(call.primitive)
    if driver is None:
        raise UnsupportedPrimitiveError(f"it is a {call.primitive}, for which benchdnn's options are not known")
    tensors = [tensor for tensor in memory_descriptors(call.memory) if tensor.dtype != "undef"]
    return [
        f"--{driver.name}",
        "--mode=P",
        f"--max-ms-per-prb={max(_SHORTEST_MS, round(budget_s * 1e3))}",
        f"--perf-template={OUTPUT_TEMPLATE}",
        "--allow-enum-tags-only=0",
        f"--engine={call.engine or 'cpu'}",
        *_direction(call, tensors),
        *driver.types(tensors),
        *driver.layouts(tensors),
        *_extras(call.auxiliary, driver.extras),
        *_attributes(call.attributes),
        call.problem.split()[0] if call.problem else "",
    ]


def _direction(call: PrimitiveCall, tensors: _Tensors) -> list[str]:
    direction = "FWD_I" if call.prop_kind == "forward_inference" else call.direction
    if not direction:
        return []
    if call.primitive == "rnn":
        return [f"--prop={call.direction}"]
    if _of(tensors, "bia"):
        direction = {"FWD_D": "FWD_B", "FWD_I": "FWD_B", "BWD_W": "BWD_WB"}.get(direction, direction)
    return [f"--dir={direction}"]


def _of(tensors: _Tensors, argument: str) -> list[MemoryDescriptor]:
    return [tensor for tensor in tensors if tensor.argument == argument]


def _first_of(tensors: _Tensors, *arguments: str) -> list[MemoryDescriptor]:
    """The first tensor of each argument that there is."""
    return [tensor for argument in arguments for tensor in _of(tensors, argument)[:1]]


def _option(name: str, values: Iterable[str]) -> list[str]:
    """`--name=` with values joined by colons; nothing without values."""
    found = list(values)
    return [f"--{name}={':'.join(found)}"] if found else []


def _joined_types(tensors: _Tensors) -> list[str]:
    return _option("dt", (tensor.dtype for tensor in _first_of(tensors, "src", "wei", "dst")))


def _matmul_types(tensors: _Tensors) -> list[str]:
    bias = _first_of(tensors, "bia")
    masks = (re.search(r"_mask(\d+)", tensor.flags) for tensor in bias)
    types, mask = (tensor.dtype for tensor in bias), (found[1] for found in masks if found)
    return [*_joined_types(tensors), *_option("bia_dt", types), *_option("bia_mask", mask)]


def _one_type(tensors: _Tensors) -> list[str]:
    return _option("dt", [tensors[0].dtype if tensors else "f32"])


def _types_each(tensors: _Tensors) -> list[str]:
    pairs = (("sdt", "src"), ("ddt", "dst"))
    return [word for name, argument in pairs for word in _option(name, (t.dtype for t in _of(tensors, argument)))]


def _one_source_type(tensors: _Tensors) -> list[str]:
    return _types_each(_first_of(tensors, "src", "dst"))


def _layouts_each(tensors: _Tensors) -> list[str]:
    pairs = (("stag", "src"), ("wtag", "wei"), ("dtag", "dst"))
    return [word for name, argument in pairs for word in _option(name, (t.tag for t in _of(tensors, argument)))]


def _layouts_or_strides(tensors: _Tensors) -> list[str]:
    """The same, with strides for those that a tag does not describe."""
    strides, tagged = [], []
    for tensor in _first_of(tensors, "src", "wei", "dst"):
        # Capital letters are blocks, which strides do not describe.
        has_strides = bool(tensor.strides) and tensor.tag != "any" and tensor.tag == tensor.tag.lower()
        strides.append(tensor.strides if has_strides else "")
        tagged += [] if has_strides else [tensor]
    return [*_layouts_each(tagged), *(_option("strides", strides) if any(strides) else [])]


def _one_layout(tensors: _Tensors) -> list[str]:
    return _option("tag", [tensor.tag for tensor in tensors if tensor.tag][:1])


def _source_and_result_layout(tensors: _Tensors) -> list[str]:
    tags, statistics = _first_of(tensors, "src", "dst"), _first_of(tensors, "stats")
    return [*_option("tag", (t.tag for t in tags)), *_option("stat_tag", (t.tag for t in statistics))]


def _rnn_types(tensors: _Tensors) -> list[str]:
    """`--cfg=`, which names a whole set of dtypes."""
    data = {tensor.dtype for tensor in tensors if tensor.argument.startswith(("src", "dst"))}
    if len(data) != 1:
        raise UnsupportedPrimitiveError("it mixes dtypes in a way that benchdnn has no configuration for")
    (dtype,) = data
    bias = next((tensor.dtype for tensor in _of(tensors, "bias")), dtype)
    return [f"--cfg={dtype}{bias if bias != dtype else ''}"]


class _Driver(NamedTuple):
    """How benchdnn wants one kind of primitive."""

    name: str  # Without the dashes
    types: Callable[[_Tensors], list[str]]
    layouts: Callable[[_Tensors], list[str]]
    extras: tuple[str, ...] = ()  # Names of auxiliary fields that become options, `alg:relu` to `--alg=relu`


_DRIVERS = {
    "convolution": _Driver("conv", _joined_types, _layouts_each, ("alg",)),
    "deconvolution": _Driver("deconv", _joined_types, _layouts_each, ("alg",)),
    "inner_product": _Driver("ip", _joined_types, _layouts_each),
    "matmul": _Driver("matmul", _matmul_types, _layouts_or_strides),
    "reorder": _Driver("reorder", _types_each, _layouts_or_strides),
    "eltwise": _Driver("eltwise", _one_type, _one_layout, ("alg", "alpha", "beta")),
    "batch_normalization": _Driver("bnorm", _one_type, _one_layout, ("flags",)),
    "layer_normalization": _Driver("lnorm", _joined_types, _source_and_result_layout, ("flags",)),
    "pooling": _Driver("pool", _joined_types, _one_layout, ("alg",)),
    "softmax": _Driver("softmax", _types_each, _layouts_each, ("alg", "axis")),
    "binary": _Driver("binary", _types_each, _layouts_each, ("alg",)),
    "concat": _Driver("concat", _one_source_type, _layouts_each, ("axis",)),
    "sum": _Driver("sum", _types_each, _layouts_each),
    "rnn": _Driver(
        "rnn", _rnn_types, lambda _: ["--trivial-strides=true"], ("alg", "direction", "activation", "flags")
    ),
}
"""By oneDNN's word for the primitive."""
_VALUES: Mapping[str, Mapping[str, str]] = {
    "alg": {
        "convolution_direct": "direct", "convolution_winograd": "WINO", "convolution_auto": "auto",
        "deconvolution_direct": "direct", "deconvolution_winograd": "WINO",
        "vanilla_rnn": "VANILLA_RNN", "vanilla_lstm": "VANILLA_LSTM", "vanilla_gru": "VANILLA_GRU",
        "lbr_gru": "LBR_GRU",
    },
    "direction": {
        "unidirectional_left2right": "left2right", "unidirectional_right2left": "right2left",
        "bidirectional_sum": "sum", "bidirectional_concat": "concat",
    },
    "activation": {"eltwise_relu": "RELU", "eltwise_tanh": "TANH", "eltwise_logistic": "LOGISTIC"},
}  # fmt: skip
"""benchdnn's word for values of auxiliary fields, where it is another one."""


def _extras(auxiliary: str, names: Sequence[str]) -> list[str]:
    fields = dict(word.partition(":")[::2] for word in auxiliary.split())
    values = ((name, fields.get(name, "")) for name in names)
    return [
        f"--{name}={_VALUES.get(name, {}).get(value, value.removeprefix('binary_'))}"
        for name, value in values
        if value not in {"", "undef"}
    ]


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
