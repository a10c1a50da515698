"""All formats by name, and which one a document is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfguard.errors import StoreError, UsageError
from perfguard.integrations.formats import (
    asv_results,
    bencher_metrics,
    github_action,
    google_benchmark,
    junit,
    open_metrics,
    pyperf_json,
    pytest_benchmark,
    pytorch_records,
    tables,
)
from perfguard.integrations.formats.documents import parse
from perfguard.integrations.formats.series import ImportedSuite, RunExport

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One format that can be imported."""

    recognises: Callable[[Any], bool]
    """Whether a document has its shape."""
    read: Callable[..., ImportedSuite]
    """Called with the document and `source`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What of a run is wanted."""

    run: RunExport
    """The run."""
    arm: str
    """Role of the arm that formats with one side get."""
    samples: bool = False
    """Raw samples instead of verdicts, where a format has both."""

    @property
    def suite(self) -> ImportedSuite:
        """The arm.

        Raises:
            StoreError: It measured nothing.
        """
        suite = self.run.arms.get(self.arm)
        if suite is None:
            known = ", ".join(sorted(self.run.arms)) or "none"
            raise StoreError(
                f"{self.run.result.run_id} holds no measurement of its {self.arm}; arms that measured: {known}"
            )
        return suite


READERS: dict[str, Reader] = {
    "pyperf": Reader(recognises=pyperf_json.recognises, read=pyperf_json.read),
    "asv": Reader(recognises=asv_results.recognises, read=asv_results.read),
    "pytest-benchmark": Reader(recognises=pytest_benchmark.recognises, read=pytest_benchmark.read),
    "google-benchmark": Reader(recognises=google_benchmark.recognises, read=google_benchmark.read),
    "pytorch": Reader(recognises=pytorch_records.recognises, read=pytorch_records.read),
    "bencher": Reader(recognises=bencher_metrics.recognises, read=bencher_metrics.read),
}
"""By name, in the order in which a document is tried; no document has the shape of two of them."""

WRITERS: dict[str, Callable[[ExportRequest], bytes]] = {
    "pyperf": lambda wanted: pyperf_json.write(wanted.suite),
    "asv": lambda wanted: asv_results.write(wanted.run, wanted.suite),
    "pytorch": lambda wanted: pytorch_records.write(wanted.run, wanted.suite, arm=wanted.arm),
    "bencher": lambda wanted: bencher_metrics.write(wanted.suite),
    "github-action": lambda wanted: github_action.write(wanted.run, wanted.suite),
    "junit": lambda wanted: junit.write(wanted.run),
    "openmetrics": lambda wanted: open_metrics.write(wanted.run),
    "csv": lambda wanted: tables.write_csv(wanted.run, samples=wanted.samples),
    "parquet": lambda wanted: tables.write_parquet(wanted.run, samples=wanted.samples),
}
"""By name."""

WITH_SAMPLES = ("csv", "parquet")
"""Formats that hold either verdicts or raw samples; all others take no notice of the choice."""


def import_suite(content: bytes, *, source: str, name: str = AUTO) -> ImportedSuite:
    """What a file holds.

    Args:
        content: The file.
        source: The file as named.
        name: A key of `READERS`, or `auto`.

    Raises:
        StoreError: It cannot be read, or is of none of the formats.
    """
    document = parse(content, source=source)
    if name != AUTO:
        return READERS[name].read(document, source=source)
    for reader in READERS.values():
        if reader.recognises(document):
            return reader.read(document, source=source)
    raise StoreError(
        f"{source} has the shape of none of {', '.join(READERS)}; --format NAME says what is wrong with it as one of "
        "them"
    )


def export_run(wanted: ExportRequest, name: str) -> bytes:
    """A run in a format.

    Args:
        wanted: The run, and what of it.
        name: A key of `WRITERS`.

    Raises:
        StoreError: It holds nothing that the format could hold.
        UsageError: Raw samples are asked of a format that has none, or what writes it is not installed.
    """
    if wanted.samples and name not in WITH_SAMPLES:
        raise UsageError(f"--samples goes with {' and '.join(WITH_SAMPLES)}; {name} has one layout only")
    return WRITERS[name](wanted)
