from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from jsonschema import Draft202012Validator

import perfguard
from perfguard.host.checks import run_checks
from perfguard.host.probe import read_fingerprint
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus, Fingerprint, QuotaState, SoftwareFacts
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.fingerprint import render_fingerprint
from tests.changed_values import replace

if TYPE_CHECKING:
    from tests.unit.host.conftest import MemoryFiles

SCHEMA = Path(perfguard.__file__).parent / "schemas" / "fingerprint.schema.json"


@pytest.fixture
def found(server: MemoryFiles) -> Fingerprint:
    return read_fingerprint(server, software=SoftwareFacts(malloc_libraries=(), openmp_runtimes=("libgomp.so.1",)))


@pytest.fixture
def idle_root(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "loadavg").write_text("0.01 0.02 0.03 1/100 1\n")
    return tmp_path


def _checks(found: Fingerprint, root: Path, **options: object) -> dict[str, CheckResult]:
    arguments = {"environment": {}, "threads": None, "cpus": (1, 2, 3), "root": root} | options
    return {row.id: row for row in run_checks(found, **arguments)}  # type: ignore[arg-type]


def test_a_quiet_host_passes(found: Fingerprint, idle_root: Path) -> None:
    rows = _checks(found, idle_root, environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
    good = {"threads", "cgroup-quota", "load", "governor", "smt", "thp", "aslr", "allocator"}
    assert {rows[name].status for name in good} == {CheckStatus.OK}


def test_every_problem_comes_with_a_command(found: Fingerprint, idle_root: Path) -> None:
    limits = replace(found.limits, quota=QuotaState.LIMITED, quota_cpus=1.5)
    state = replace(found.state, thp="always", aslr=0)
    rows = _checks(
        replace(found, limits=limits, state=state), idle_root, cpus=(0, 4), environment={"OMP_NUM_THREADS": "64"}
    )
    bad = [row for row in rows.values() if row.status in {CheckStatus.WARN, CheckStatus.FAIL}]
    assert {row.id for row in bad} >= {
        "threads",
        "cgroup-quota",
        "turbo",
        "smt",
        "thp",
        "aslr",
        "numa-balancing",
        "swap",
    }
    assert all(row.fix and row.why for row in bad)
    assert all(describe(text) for row in bad for text in (row.observed, row.why, row.fix))


def test_more_threads_than_the_mask_fails(found: Fingerprint, idle_root: Path) -> None:
    assert _checks(found, idle_root, threads=8)["threads"].status is CheckStatus.FAIL


def test_binding_variables_warn(found: Fingerprint, idle_root: Path) -> None:
    row = _checks(found, idle_root, environment={"OMP_PROC_BIND": "true"})["threads"]
    assert (row.status, row.fix) == (CheckStatus.WARN, fact("doctor.fix_binding", names="OMP_PROC_BIND"))


def test_the_load_of_the_moment_is_read_and_not_the_recorded_one(found: Fingerprint, idle_root: Path) -> None:
    assert found.state.load_1min == 1.5
    assert _checks(found, idle_root)["load"].status is CheckStatus.OK
    (idle_root / "proc" / "loadavg").write_text("7.90 1 1 1/1 1\n")
    assert _checks(found, idle_root)["load"].status is CheckStatus.FAIL


def test_a_preloaded_allocator_that_did_not_load_fails(found: Fingerprint, idle_root: Path) -> None:
    row = _checks(found, idle_root, environment={"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"})["allocator"]
    assert row.status is CheckStatus.FAIL


def test_steal_is_of_no_interest_on_bare_metal_and_fails_when_large(found: Fingerprint, idle_root: Path) -> None:
    bare = replace(found, state=replace(found.state, steal_ratio=0.0))
    assert _checks(bare, idle_root)["steal"].status is CheckStatus.NOT_APPLICABLE
    assert _checks(found, idle_root)["steal"].status is CheckStatus.FAIL


def test_an_unknown_machine_gives_unknown_rows(memory_files: type, idle_root: Path) -> None:
    (idle_root / "proc" / "loadavg").write_text("")
    rows = _checks(read_fingerprint(memory_files({})), idle_root, cpus=None)
    # The allocator follows from the environment that the workers get, whatever the machine is.
    assert rows.pop("allocator").status is CheckStatus.WARN
    assert {row.status for row in rows.values()} == {CheckStatus.UNKNOWN}


def test_the_text_shows_the_machine_first_and_says_unknown(found: Fingerprint, memory_files: type) -> None:
    lines = render_fingerprint(found).splitlines()
    assert lines[0].split() == ["machine", found.machine_id]
    assert any(line.split() == ["cores", "4"] for line in lines)
    unknown = render_fingerprint(read_fingerprint(memory_files({})))
    assert unknown.count("unknown") > 20
    assert "None" not in unknown


def test_the_text_is_plain_and_aligned(found: Fingerprint) -> None:
    text = render_fingerprint(found)
    assert text.endswith("\n")
    assert all(char.isprintable() or char == "\n" for char in text)
    starts = {
        len(line) - len(line[18:].lstrip())
        for line in text.splitlines()
        if line.startswith("  ") and "  - " not in line
    }
    assert starts == {18}


def test_output_fits_the_schema_and_reads_back(found: Fingerprint, memory_files: type) -> None:
    validator = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for fingerprint in (found, read_fingerprint(memory_files({}))):
        data = msgspec.json.encode(fingerprint)
        validator.validate(json.loads(data))
        assert msgspec.json.decode(data, type=Fingerprint) == fingerprint


def test_the_promised_fields_are_in_the_json(found: Fingerprint) -> None:
    data = json.loads(msgspec.json.encode(found))
    assert {"machine_id", "stack_id", "isa", "topology"} <= data.keys()
    assert {"packages", "cores", "threads_online", "smt", "hybrid", "numa_nodes"} <= data["topology"].keys()
    assert {"id", "cpus", "memory_bytes"} <= data["topology"]["numa_nodes"][0].keys()
