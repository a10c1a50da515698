"""oneDNN's verbose log: one typed call for each line that a primitive left.

Fields are found by the log's own template line, in the way of oneDNN's `scripts/verbose_converter/src/parse.py`
(Apache-2.0; none of its code is used). What is followed of it: the order marker, `vN`, timestamp, component, operation,
each but the operation being optional; `graph` lines have another template and are passed over; `info` with `template:`
or `prim_template:` replaces the template, whose `timestamp` stands at another place than it says; the operation before
its colon is the event; the last field is the time; fields hold no commas. What differs: a call without a time is
counted as malformed instead of taking 0 s, logs that have no template are read by their number of fields, so that
those of MKL-DNN and DNNL before 1.3 can be, and nothing raises. Memory descriptors stay as logged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_FIELDS = (
    "operation", "engine", "primitive", "implementation", "prop_kind", "memory_descriptors", "attributes", "auxiliary",
    "problem_desc",
)  # fmt: skip
"""What stands before the time where no template says otherwise."""
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
_MESSAGE_EVENTS = frozenset({"error", "warn", "debuginfo"})
_REASONS = frozenset({"check", "dispatch", "error"})
"""Details of an event whose lines end with a reason and a source file instead of a time."""
_FACTS = (
    ("version", re.compile(r"info,(?:oneDNN|DNNL|Intel(?:\(R\))? MKL-DNN) v(\d[\w.-]*)", re.ASCII)),
    ("threads", re.compile(r"info,cpu,.*\bnthr:(\d{1,6})\b", re.ASCII)),
    ("isa", re.compile(r"info,(?:cpu,isa:|Detected ISA is )(.+)")),
    ("isa", re.compile(r"info,(?:DNNL|Intel\(R\) MKL-DNN) v[^,]*,(.+)")),
)
"""Of the header; the ISA has stood at three places."""
_DIRECTIONS: Mapping[str, str] = {
    "forward": "FWD_D",
    "forward_training": "FWD_D",
    "forward_inference": "FWD_D",
    "forward_scoring": "FWD_D",
    "backward_data": "BWD_D",
    "backward_weights": "BWD_W",
    "backward_bias": "BWD_W",
    "backward": "BWD_DW",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimitiveCall:
    """One execution or creation of a primitive, or one call of an MKL routine, as logged."""

    library: str
    """`onednn` or `mkl`."""
    operation: str
    """`exec`, or how a primitive was made: `create:cache_hit`, `create:cache_miss`, …"""
    engine: str
    """`cpu`, `gpu:0`; empty in logs of MKL-DNN."""
    primitive: str
    """`convolution`, `reorder`, …; for MKL the routine in small letters, `sgemm`."""
    implementation: str
    """`brg_conv_fwd:avx512_core`; empty for MKL."""
    prop_kind: str
    """`forward_training`, `backward_data`, …; `undef` where the primitive has none; empty for MKL."""
    memory: str
    """Memory descriptors; empty for MKL."""
    attributes: str
    """Post-ops, scales, scratchpad; for MKL its settings, `CNR:OFF Dyn:1 …`."""
    auxiliary: str
    """Algorithm and the like."""
    problem: str
    """benchdnn's problem descriptor; for MKL the routine's arguments without pointers."""
    time_s: float
    """Wall time of the call, not negative. oneDNN's is a difference of milliseconds since the epoch, a multiple of
    2**-12 ms."""
    timestamp_s: float | None
    """When it began, since the epoch; None where the log has none."""
    line: int
    """Number of its line in the log, from 0: the order of calls of both libraries."""

    @property
    def direction(self) -> str:
        """`FWD_D`, `BWD_D`, `BWD_W`, `BWD_DW` or empty."""
        return direction_of(self.prop_kind)

    @property
    def executed(self) -> bool:
        """Whether it ran a primitive, rather than made one."""
        return self.operation == "exec"

    @property
    def cache_miss(self) -> bool:
        """Whether a primitive was made that the cache did not hold."""
        return self.operation.endswith(":cache_miss")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerboseLog:
    """What a verbose log tells."""

    calls: tuple[PrimitiveCall, ...]
    """In the order of the log."""
    malformed: int
    """Messages of the library that could not be read: cut, mixed with other text, or of an unknown kind."""
    version: str | None
    """`3.12.0`; None where the log has no header: it is printed once a process."""
    isa: str | None = None
    """`Intel AVX-512 with Intel DL Boost and bfloat16 support`, likewise."""
    threads: int | None = None
    """What the runtime could use when the header was printed, likewise."""


def direction_of(prop_kind: str) -> str:
    """The word of benchdnn for a propagation kind, training and inference alike; empty for `undef` and unknown ones."""
    return _DIRECTIONS.get(prop_kind, "")


def parse_verbose(lines: Iterable[str]) -> VerboseLog:
    """Read a log that may hold the program's own output, also before a message on the same line; never raises.

    Args:
        lines: With or without their line ends. Where they keep them, a last line without one was cut, and its time is
            not believed.
    """
    reader = _Reader()
    for message in messages(lines):
        if not message.text.startswith("MKL_VERBOSE"):
            reader.read(message)
    return reader.log()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a library within a log."""

    line: int
    """Number of its line, from 0."""
    text: str
    """From its marker on, without the line end."""
    whole: bool
    """Whether nothing shows that it was cut."""


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The messages of oneDNN and MKL among other output, for their parsers."""
    keeps_ends = False
    for number, line in enumerate(lines):
        ended = line.endswith("\n")
        keeps_ends = keeps_ends or ended
        *cut, last = _MARKER.split(line)
        # A library ends its messages with a line end, so another marker on the same line cut the message before it.
        yield from (Message(line=number, text=text, whole=False) for text in cut[1:])
        if cut:
            yield Message(line=number, text=last.rstrip(), whole=ended or not keeps_ends)


def decimal(text: str) -> float | None:
    """A finite number as C's `%g` prints it; None for anything else."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


class _Reader:
    """What is known of a log while it is read: its templates and its header."""

    def __init__(self) -> None:
        self._calls: list[PrimitiveCall] = []
        self._malformed = 0
        self._facts: dict[str, str] = {}
        self._templates: dict[str, tuple[str, ...]] = {}
        # The same few problems return in every step: their fields are split and kept once.
        self._split: dict[tuple[str, str], dict[str, str] | None] = {}

    def read(self, message: Message) -> None:
        found = _MESSAGE.fullmatch(message.text)
        event = found["event"] if found else None
        if found is None or event not in _TIMED_EVENTS | _MESSAGE_EVENTS | {"info"}:
            self._malformed += 1
        elif found["component"] in {"graph", "ukernel", "common"}:
            return
        elif event == "info":
            self._read_info(found["marker"], found["args"])
        elif event in _TIMED_EVENTS and found["detail"] not in _REASONS:
            self._read_call(message, found)

    def log(self) -> VerboseLog:
        threads = self._facts.get("threads")
        return VerboseLog(
            calls=tuple(self._calls),
            malformed=self._malformed,
            version=self._facts.get("version"),
            isa=self._facts.get("isa"),
            threads=int(threads) if threads is not None else None,
        )

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

    def _read_call(self, message: Message, found: re.Match[str]) -> None:
        leading, _, last = found["args"].rpartition(",")
        key = (found["marker"], leading)
        if key not in self._split:
            self._split[key] = self._fields(*key)
        fields, time_ms = self._split[key], decimal(last)
        if fields is None or time_ms is None or not message.whole:
            self._malformed += 1
            return
        stamp_ms = found["timestamp_ms"]
        self._calls.append(
            PrimitiveCall(
                library="onednn",
                operation=fields["operation"],
                engine=fields.get("engine", ""),
                primitive=fields["primitive"],
                implementation=fields.get("implementation", ""),
                prop_kind=fields.get("prop_kind", ""),
                memory=fields.get("memory_descriptors", ""),
                attributes=fields.get("attributes", ""),
                auxiliary=fields.get("auxiliary", ""),
                problem=fields.get("problem_desc", ""),
                # The wall clock may be set back during a call; the call still counts.
                time_s=max(0.0, time_ms) / 1e3,
                timestamp_s=float(stamp_ms) / 1e3 if stamp_ms is not None else None,
                line=message.line,
            )
        )

    def _fields(self, marker: str, leading: str) -> dict[str, str] | None:
        """The fields before the time; None where they do not fit the template."""
        values = leading.split(",")
        names = self._templates.get(marker) or _OLD_FIELDS.get((marker, len(values)), _FIELDS)
        if len(values) != len(names):
            return None
        fields = {name: value.strip() for name, value in zip(names, values, strict=True)}
        return fields if fields.get("operation") and fields.get("primitive") else None
