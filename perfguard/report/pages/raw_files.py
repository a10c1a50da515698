"""Raw data of a run, as far as a page can hold it, and what its arms attested."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfguard.plain_files import open_plain
from perfguard.report.html.content import ArmFacts, RawFile
from perfguard.units import format_bytes, format_count
from perfguard.watch.sources.event_sources import EVENTS_FILE, read_beside

MOST_RAW_BYTES = 5 * 1000**2  # A longer recording goes into a page without its samples
_DOCUMENTS = ("result.json", "profile.json")
_SAMPLE = b'"event":"sample"'
_SHOWN_DIFFERENCES = 60


def raw_files(folder: Path) -> Iterator[RawFile]:
    """Raw data, the recording first."""
    recording = _recording_file(folder)
    if recording is not None:
        yield recording
    for name in _DOCUMENTS:
        document = read_beside(folder, name)
        if document is not None:
            yield _bounded(RawFile(name=name, size_bytes=len(document), content=document))


def _recording_file(folder: Path) -> RawFile | None:
    """The recording, read line by line and without its samples where it is long. None where there is none."""
    content = read_beside(folder, EVENTS_FILE, most_bytes=MOST_RAW_BYTES)
    if content is not None:
        return RawFile(name=EVENTS_FILE, size_bytes=len(content), content=content) if content else None
    kept, kept_bytes, samples, size_bytes = list[bytes](), 0, 0, 0
    try:
        file = open_plain(folder / EVENTS_FILE)
        if file is None:
            return None
        with file:
            while line := file.readline(MOST_RAW_BYTES):
                size_bytes += len(line)
                if _SAMPLE in line[:60]:
                    samples += 1
                elif kept_bytes <= MOST_RAW_BYTES:
                    kept.append(line)
                    kept_bytes += len(line)
    except OSError:
        return None
    note = f"without its {format_count(samples, 'sample')}, because it is larger than {format_bytes(MOST_RAW_BYTES)}"
    return _bounded(RawFile(name=EVENTS_FILE, size_bytes=size_bytes, content=b"".join(kept), note=note))


def _bounded(file: RawFile) -> RawFile:
    """A file that is too large goes without its content."""
    if len(file.content) <= MOST_RAW_BYTES:
        return file
    note = f"left out, because it is larger than {format_bytes(MOST_RAW_BYTES)}; it is in the run's folder"
    return RawFile(name=file.name, size_bytes=file.size_bytes, content=b"", note=note)


def arm_facts(folder: Path) -> tuple[ArmFacts, ...]:
    """What differs between the arms, from what each attested; empty where there are not two."""
    content = read_beside(folder, "arms.json")
    try:
        arms = json.loads(content) if content is not None else {}
        baseline, candidate = arms["baseline"], arms["candidate"]
        return tuple(
            ArmFacts(topic=topic, differences=_changed(read(baseline[name]), read(candidate[name])))
            for topic, name, read in (
                ("imported files", "code", _pairs),
                ("packages", "distributions", _packages),
                ("variables", "environment", _pairs),
            )
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # missing, or not what perfguard wrote
        return ()


def _pairs(attested: Iterable[Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in attested}


def _packages(attested: Iterable[Any]) -> dict[str, str]:
    return dict(str(item).partition("==")[::2] for item in attested)


def _changed(baseline: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[str, ...]:
    """`torch 2.12 → 2.13`; digests, which say nothing to people, are left out."""
    changed = []
    for name in sorted(baseline.keys() | candidate.keys()):
        old, new = baseline.get(name, "absent"), candidate.get(name, "absent")
        if old != new:
            is_digest = len(old) == len(new) == 64
            changed.append(f"{name} differs" if is_digest else f"{name}: {_brief(old)} → {_brief(new)}")
    more = len(changed) - _SHOWN_DIFFERENCES
    return (*changed[:_SHOWN_DIFFERENCES], *([f"and {more} more"] if more > 0 else ()))


def _brief(value: str) -> str:
    """A digest is only said to be there."""
    return "present" if len(value) == 64 and " " not in value else value
