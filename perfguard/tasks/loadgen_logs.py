"""Reads what LoadGen writes: its detail log, its summary and its accuracy log. Text in, values out."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfguard.errors import StoreError
from perfguard.records.tasks import Scenario

DETAIL = "mlperf_log_detail.txt"
SUMMARY = "mlperf_log_summary.txt"
ACCURACY = "mlperf_log_accuracy.json"
OWN_STAMPS = "perfguard_stamps.npz"  # When queries came and were answered, by perfguard's clock
OWN_ANSWERS = "perfguard_answers.npz"  # To some queries of a measurement of speed

_MARK = ":::MLLOG "
_FILE = re.compile(r'"file": "[^"]*"')
"""LoadGen's own source file; on Windows with backslashes that are no JSON."""
_LINE = re.compile(r"^\s*\*?\s*([^:]+?)\s*:\s*(.*?)\s*$")
_MOST = 2.0**64  # Beyond what LoadGen counts in


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailLog:
    """`mlperf_log_detail.txt`."""

    values: Mapping[str, Any]  # By key; the last one where a key repeats
    errors: tuple[str, ...]  # Lines that LoadGen marked as errors
    warnings: tuple[str, ...]

    def number(self, key: str) -> float | None:
        """The value of a key, where it is a number that LoadGen could have counted or measured."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value) if -_MOST <= value <= _MOST else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSpeed:
    """Figures of a measurement of speed; None where a scenario has none."""

    is_valid: bool
    score_s: float | None
    p90_s: float | None
    samples_per_s: float | None
    mean_s: float | None


def logged_speed(detail: DetailLog, scenario: Scenario) -> LoggedSpeed:
    """What LoadGen says of a measurement."""

    def seconds(key: str) -> float | None:
        value = detail.number(key)
        return None if value is None else value / 1e9

    return LoggedSpeed(
        is_valid=detail.values.get("result_validity") == "VALID",
        score_s=seconds("early_stopping_latency_ss"),
        p90_s=None if scenario is Scenario.OFFLINE else seconds("result_90.00_percentile_latency_ns"),
        samples_per_s=detail.number("result_samples_per_second") or detail.number("result_completed_samples_per_sec"),
        mean_s=seconds("result_mean_latency_ns"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAnswer:
    """One line of the accuracy log."""

    sample: int  # Index of the example
    data: bytes  # What the system answered


def parse_detail(text: str, *, source: str) -> DetailLog:
    """Lines of `:::MLLOG {json}`.

    Raises:
        StoreError: There is none, or one is no JSON object with a key.
    """
    values: dict[str, Any] = {}
    errors, warnings = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(_MARK):
            continue
        try:
            entry = json.loads(_FILE.sub('"file": ""', line.removeprefix(_MARK)))
            key, value, about = entry["key"], entry["value"], entry.get("metadata", {})
            is_error, is_warning = bool(about.get("is_error")), bool(about.get("is_warning"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(f"{source}, line {number}: not a line of LoadGen's detail log ({error})") from error
        values[str(key)] = value
        if is_error:
            errors.append(f"{key}: {value}")
        if is_warning:
            warnings.append(f"{key}: {value}")
    if not values:
        raise StoreError(f"{source} has no line that starts with {_MARK.strip()}")
    return DetailLog(values=values, errors=tuple(errors), warnings=tuple(warnings))


def parse_summary(text: str) -> dict[str, str]:
    """`name : value` lines of the summary, in lower case and without spaces before the colon."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if (match := _LINE.match(line)) is not None:
            found.setdefault(match[1].strip().lower(), match[2])
    return found


def parse_answers(text: str, *, source: str) -> tuple[LoggedAnswer, ...]:
    """`mlperf_log_accuracy.json`.

    Raises:
        StoreError: It is something else.
    """
    try:
        entries = json.loads(text)
        if not isinstance(entries, list):
            raise TypeError("no list")
        return tuple(
            LoggedAnswer(sample=_index(entry["qsl_idx"]), data=bytes.fromhex(entry["data"])) for entry in entries
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{source} is not LoadGen's accuracy log ({error})") from error


def _index(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"qsl_idx {value!r}")
    return value


def answers_sha256(answers: Sequence[LoggedAnswer]) -> str:
    """Hash of all answers, in the order of the examples."""
    found = hashlib.sha256()
    for answer in sorted(answers, key=lambda each: each.sample):
        found.update(answer.sample.to_bytes(8, "little") + answer.data)
    return found.hexdigest()


def duplicates(answers: Sequence[LoggedAnswer]) -> tuple[int, ...]:
    """Examples that were answered more than once."""
    counts = Counter(answer.sample for answer in answers)
    return tuple(sorted(sample for sample, count in counts.items() if count > 1))
