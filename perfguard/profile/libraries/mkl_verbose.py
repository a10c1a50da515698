"""MKL's verbose log: the GEMMs, transforms and solvers that never show in oneDNN's.

`MKL_VERBOSE SGEMM(N,N,8,4,16,0x7f…,0x7f…,8,0x7f…,16,0x7f…,0x7f…,8) 1.23ms CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:1`: the
routine with its arguments, the wall time of the call, the library's settings. There is no timestamp; the order of the
lines is the order of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from perfguard.profile.libraries.onednn_verbose import Message, PrimitiveCall, VerboseLog, decimal, messages

_CALL = re.compile(
    r"MKL_VERBOSE (?P<routine>[A-Za-z_]\w*)\((?P<arguments>.*)\) "
    r"(?P<number>[\d.e+-]+)(?P<unit>ns|us|ms|s) (?P<settings>.*\bNThr:\d+.*)",
    re.ASCII,
)
_HEADER = re.compile(
    r"MKL_VERBOSE (?:oneMKL|Intel\(R\) (?:oneAPI Math Kernel Library|MKL)) (?P<version>\S.*?) (?:Product|Patch)"
)
_UNITS_S: Mapping[str, float] = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_POINTER = re.compile(r"(?:\w+:)?(?:0x[0-9a-fA-F]+|\(nil\))", re.ASCII)
_ARGUMENT = re.compile(r"(?:[^,{]|\{[^}]*\}?)+")


def parse_mkl_verbose(lines: Iterable[str]) -> VerboseLog:
    """Read a log that may hold other output, oneDNN's too; never raises.

    Args:
        lines: As for `parse_verbose`.
    """
    calls, malformed, version = [], 0, None
    for message in messages(lines):
        if not message.text.startswith("MKL_VERBOSE"):
            continue
        header = _HEADER.match(message.text)
        if header:
            version = version or header["version"]
            continue
        call = _call_of(message)
        if call is None:
            malformed += 1
        else:
            calls.append(call)
    return VerboseLog(calls=tuple(calls), malformed=malformed, version=version)


def _call_of(message: Message) -> PrimitiveCall | None:
    found = _CALL.fullmatch(message.text) if message.whole else None
    number = decimal(found["number"]) if found else None
    if found is None or number is None:
        return None
    arguments = (argument for argument in _ARGUMENT.findall(found["arguments"]) if not _POINTER.fullmatch(argument))
    return PrimitiveCall(
        library="mkl",
        operation="exec",
        engine="cpu",
        primitive=found["routine"].lower(),
        implementation="",
        prop_kind="",
        memory="",
        # TID numbers the calling thread; the rest is spaced unevenly.
        attributes=" ".join(word for word in found["settings"].split() if not word.startswith("TID:")),
        auxiliary="",
        problem=",".join(arguments),
        time_s=max(0.0, number) * _UNITS_S[found["unit"]],
        timestamp_s=None,
        line=message.line,
    )
