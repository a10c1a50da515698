"""The verbose logs of oneDNN and MKL: one typed call for each line that a primitive or a routine left.

oneDNN: fields are found by the log's own template line, in the way of its `scripts/verbose_converter/src/parse.py`
(Apache-2.0; none of its code is used). As there: the order is marker, `vN`, timestamp, component, operation, all but
the operation optional; `graph` lines have another template and are passed over; `info` with `template:` or
`prim_template:` replaces the template, whose `timestamp` stands at another place than it says; the operation before its
colon is the event; the last field is the time; fields hold no commas. Unlike there: a call without a time is malformed
instead of taking 0 s, logs without a template (MKL-DNN, DNNL before 1.3) are read by their number of fields, and
nothing raises. Memory descriptors stay as logged.

MKL: `MKL_VERBOSE SGEMM(N,N,8,4,16,0x7f…,0x7f…,8,0x7f…,16,0x7f…,0x7f…,8) 1.23ms CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:1` is
the routine with its arguments, the wall time of the call, the library's settings. There is no timestamp; the order of
the lines is the order of the calls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

_FIELDS = (
    "operation", "engine", "primitive", "implementation", "prop_kind", "memory_descriptors", "attributes", "auxiliary",
    "problem_desc",
)  # fmt: skip
"""What stands before the time where no template says otherwise."""
_ATTRIBUTES = dict(zip(_FIELDS, _FIELDS, strict=True)) | {"memory_descriptors": "memory", "problem_desc": "problem"}
"""Attributes of a call by the fields."""
_OLD_FIELDS: Mapping[tuple[str, int], tuple[str, ...]] = {
    ("dnnl", 8): tuple(name for name in _FIELDS if name != "attributes"),
    ("mkldnn", 7): tuple(name for name in _FIELDS if name not in {"engine", "attributes"}),
    ("mkldnn", 6): tuple(name for name in _FIELDS if name not in {"engine", "attributes", "implementation"}),
}
"""The same by marker and number of fields: DNNL before 1.1; MKL-DNN; MKL-DNN before it named implementations."""

_MARKER = re.compile(r"(?=(?:onednn|dnnl|mkldnn)_verbose,|MKL_VERBOSE )")
_MESSAGE = re.compile(
    r"(?P<marker>onednn|dnnl|mkldnn)_verbose,"
    r"(?:v\d+,)?"
    r"(?:(?P<timestamp_ms>\d{1,16}(?:\.\d{0,12})?),)?"
    r"(?:(?P<component>primitive|graph|ukernel|common),)?"
    r"(?P<args>(?P<event>\w+)(?::(?P<detail>\w+))?,.*)",
    re.ASCII,
)
_TEMPLATE = re.compile(r"info,(?:prim_)?template:(.*),exec_time", re.ASCII)
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?", re.ASCII)
_TIMED_EVENTS = frozenset({"exec", "create", "create_nested"})
_EVENTS = _TIMED_EVENTS | {"error", "warn", "debuginfo", "info"}
_REASONS = frozenset({"check", "dispatch", "error"})
"""Details of an event whose lines end with a reason and a source file instead of a time."""
_FACTS = (
    ("version", re.compile(r"info,(?:oneDNN|DNNL|Intel(?:\(R\))? MKL-DNN) v(\d[\w.-]*)", re.ASCII)),
    ("threads", re.compile(r"info,cpu,.*\bnthr:(\d{1,6})\b", re.ASCII)),
    ("isa", re.compile(r"info,(?:cpu,isa:|Detected ISA is )(.+)")),
    ("isa", re.compile(r"info,(?:DNNL|Intel\(R\) MKL-DNN) v[^,]*,(.+)")),
)
"""Of the header; the ISA has stood at three places."""
_MKL_CALL = re.compile(
    r"MKL_VERBOSE (?P<routine>[A-Za-z_]\w*)\((?P<arguments>.*)\) "
    r"(?P<number>[\d.e+-]+)(?P<unit>ns|us|ms|s) (?P<settings>.*\bNThr:\d+.*)",
    re.ASCII,
)
_MKL_HEADER = re.compile(
    r"MKL_VERBOSE (?:oneMKL|Intel\(R\) (?:oneAPI Math Kernel Library|MKL)) (?P<version>\S.*?) (?:Product|Patch)"
)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_POINTER = re.compile(r"(?:\w+:)?(?:0x[0-9a-fA-F]+|\(nil\))", re.ASCII)
_ARGUMENT = re.compile(r"(?:[^,{]|\{[^}]*\}?)+")
_DIRECTIONS = {
    "forward": "FWD_D", "forward_training": "FWD_D", "forward_inference": "FWD_D", "forward_scoring": "FWD_D",
    "backward_data": "BWD_D", "backward_weights": "BWD_W", "backward_bias": "BWD_W", "backward": "BWD_DW",
}  # fmt: skip


class PrimitiveCall(Struct, frozen=True, kw_only=True):
    """One execution or creation of a primitive, or one call of an MKL routine, as logged."""

    library: str  # `onednn` or `mkl`
    operation: str  # `exec`, or how a primitive was made: `create:cache_hit`, `create:cache_miss`, …
    primitive: str  # `convolution`, `reorder`, …; for MKL the routine in small letters, `sgemm`
    time_s: float
    """Wall time of the call, not negative. oneDNN's is a difference of milliseconds since the epoch, a multiple of
    2**-12 ms."""
    line: int  # Number of its line in the log, from 0: the order of calls of both libraries
    timestamp_s: float | None = None  # When it began, since the epoch; None where the log has none
    engine: str = ""  # `cpu`, `gpu:0`; empty in logs of MKL-DNN
    implementation: str = ""  # `brg_conv_fwd:avx512_core`; empty for MKL
    prop_kind: str = ""
    """`forward_training`, `backward_data`, …; `undef` where the primitive has none; empty for MKL."""
    memory: str = ""  # Memory descriptors; empty for MKL
    attributes: str = ""  # Post-ops, scales, scratchpad; for MKL its settings, `CNR:OFF Dyn:1 …`
    auxiliary: str = ""  # Algorithm and the like
    problem: str = ""  # benchdnn's problem descriptor; for MKL the routine's arguments without pointers

    @property
    def direction(self) -> str:
        """Benchdnn's word for the propagation kind, training and inference alike: `FWD_D`, `BWD_D`, `BWD_W`, `BWD_DW`.

        Empty for `undef` and unknown kinds.
        """
        return _DIRECTIONS.get(self.prop_kind, "")

    @property
    def executed(self) -> bool:
        """Whether it ran a primitive, rather than made one."""
        return self.operation == "exec"

    @property
    def cache_miss(self) -> bool:
        """Whether a primitive was made that the cache did not hold."""
        return self.operation.endswith(":cache_miss")


class VerboseLog(Struct, frozen=True, kw_only=True):
    """What a verbose log says."""

    calls: tuple[PrimitiveCall, ...]
    malformed: int
    """Messages of the library that could not be read: cut, mixed with other text, or of an unknown kind."""
    version: str | None = None  # `3.12.0`; None where the log has no header: it is printed once a process
    isa: str | None = None  # `Intel AVX-512 with Intel DL Boost and bfloat16 support`, likewise
    threads: int | None = None  # What the runtime could use when the header was printed, likewise


def parse_verbose(lines: Iterable[str]) -> VerboseLog:
    """Read oneDNN's part of a log that may hold other output, also before a message on the same line; never raises.

    Where lines keep their ends, a last one without was cut, and its time is not believed.
    """
    reader = _Reader()
    for message in _messages(lines, of_mkl=False):
        reader.read(message)
    return reader.log()


def parse_mkl_verbose(lines: Iterable[str]) -> VerboseLog:
    """Read MKL's part of such a log; never raises."""
    found, version = [], None
    for message in _messages(lines, of_mkl=True):
        header = _MKL_HEADER.match(message.text)
        if header:
            version = version or header["version"]
        else:
            found.append(_mkl_call(message))
    calls = tuple(call for call in found if call is not None)
    return VerboseLog(calls=calls, malformed=len(found) - len(calls), version=version)


class _Message(NamedTuple):
    """One message of a library within a log."""

    line: int
    text: str  # From its marker on, without the line end
    is_whole: bool  # Whether nothing shows that it was cut


def _messages(lines: Iterable[str], *, of_mkl: bool) -> Iterator[_Message]:
    """The messages of MKL or of oneDNN among other output."""
    keeps_ends = False
    for number, line in enumerate(lines):
        ended = line.endswith("\n")
        keeps_ends = keeps_ends or ended
        *cut, last = _MARKER.split(line)
        # A library ends its messages with a line end, so another marker on the same line cut the message before it.
        found = [_Message(number, text, is_whole=False) for text in cut[1:]]
        if cut:
            found.append(_Message(number, last.rstrip(), is_whole=ended or not keeps_ends))
        yield from (message for message in found if message.text.startswith("MKL_VERBOSE") == of_mkl)


def _decimal(text: str) -> float | None:
    """A finite number as C's `%g` prints it; None for anything else."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _mkl_call(message: _Message) -> PrimitiveCall | None:
    found = _MKL_CALL.fullmatch(message.text) if message.is_whole else None
    number = _decimal(found["number"]) if found else None
    if found is None or number is None:
        return None
    arguments = (argument for argument in _ARGUMENT.findall(found["arguments"]) if not _POINTER.fullmatch(argument))
    return PrimitiveCall(
        library="mkl",
        operation="exec",
        engine="cpu",
        primitive=found["routine"].lower(),
        # TID numbers the calling thread; the rest is spaced unevenly.
        attributes=" ".join(word for word in found["settings"].split() if not word.startswith("TID:")),
        problem=",".join(arguments),
        time_s=max(0.0, number) * _UNITS_S[found["unit"]],
        line=message.line,
    )


class _Reader:
    """What is known of oneDNN's log while it is read: its templates and its header."""

    def __init__(self) -> None:
        self._calls: list[PrimitiveCall] = []
        self._malformed = 0
        self._facts: dict[str, str] = {}
        self._templates: dict[str, tuple[str, ...]] = {}
        # The same few problems return in every step: their fields are split and kept once.
        self._split: dict[tuple[str, str], dict[str, str] | None] = {}

    def read(self, message: _Message) -> None:
        found = _MESSAGE.fullmatch(message.text)
        event = found["event"] if found else None
        if found is None or event not in _EVENTS:
            self._malformed += 1
        elif found["component"] in {"graph", "ukernel", "common"}:
            return
        elif event == "info":
            self._read_info(found["marker"], found["args"])
        elif event in _TIMED_EVENTS and found["detail"] not in _REASONS:
            self._read_call(message, found)

    def log(self) -> VerboseLog:
        facts: dict[str, Any] = dict(self._facts)
        if "threads" in facts:
            facts["threads"] = int(facts["threads"])
        return VerboseLog(calls=tuple(self._calls), malformed=self._malformed, **facts)

    def _read_info(self, marker: str, args: str) -> None:
        template = _TEMPLATE.fullmatch(args)
        if template:
            self._templates[marker] = tuple(name for name in template[1].split(",") if name != "timestamp")
            self._split.clear()
        elif "template:" in args:
            self._malformed += 1
        for name, pattern in _FACTS:
            fact = pattern.match(args)
            if fact:
                self._facts.setdefault(name, fact[1])

    def _read_call(self, message: _Message, found: re.Match[str]) -> None:
        leading, _, last = found["args"].rpartition(",")
        key = (found["marker"], leading)
        if key not in self._split:
            self._split[key] = self._fields(*key)
        fields, time_ms, stamp_ms = self._split[key], _decimal(last), found["timestamp_ms"]
        if fields is None or time_ms is None or not message.is_whole:
            self._malformed += 1
            return
        # The wall clock may be set back during a call; the call still counts.
        time_s = max(0.0, time_ms) / 1e3
        stamp_s = float(stamp_ms) / 1e3 if stamp_ms is not None else None
        call = PrimitiveCall(library="onednn", time_s=time_s, timestamp_s=stamp_s, line=message.line, **fields)
        self._calls.append(call)

    def _fields(self, marker: str, leading: str) -> dict[str, str] | None:
        """The attributes of a call that stand before the time; None where they do not fit the template."""
        values = leading.split(",")
        names = self._templates.get(marker) or _OLD_FIELDS.get((marker, len(values)), _FIELDS)
        if len(values) != len(names):
            return None
        pairs = zip(names, values, strict=True)
        fields = {_ATTRIBUTES[name]: value.strip() for name, value in pairs if name in _ATTRIBUTES}
        return fields if fields.get("operation") and fields.get("primitive") else None
