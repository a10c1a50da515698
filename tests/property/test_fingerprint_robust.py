"""Whatever a machine's files hold, there is a fingerprint, and it fits the schema."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from perfguard.errors import UsageError
from perfguard.host.identity import match
from perfguard.host.parsers.cgroup import parse_membership, parse_mounts
from perfguard.host.parsers.cpu import parse_cpuinfo, read_cpu
from perfguard.host.placement import select_cpus
from perfguard.host.probe import probe
from perfguard.recordings import schema_of
from perfguard.records.machine.cpuset import MAX_CPUS, format_cpu_list, parse_cpu_list, parse_cpu_mask
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.report.terminal.fingerprint import render_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

VALIDATOR = Draft202012Validator(schema_of("fingerprint"))

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GOOD = {
    "proc/cpuinfo": "".join(
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t: 85\nmodel name\t: Xeon\n"
        f"physical id\t: 0\ncore id\t: {cpu}\nflags\t: fpu avx avx2 fma avx512f avx512bw avx512dq avx512vl\n\n"
        for cpu in range(2)
    ),
    "proc/meminfo": "MemTotal: 1024 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    "proc/stat": "cpu 1 2 3 4 5 6 7 8 9 10\n",
    "proc/version": "Linux version 6.1.0 (x)",
    "proc/loadavg": "0.1 0.1 0.1 1/1 1",
    "proc/self/cgroup": "0::/a/b\n",
    "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "proc/sys/kernel/numa_balancing": "0",
    "sys/fs/cgroup/a/b/cpu.max": "150000 100000",
    "sys/fs/cgroup/a/b/cpuset.cpus.effective": "0-1",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    f"{CPU}/online": "0-1",
    f"{CPU}/possible": "0-3",
    f"{CPU}/offline": "2-3",
    f"{CPU}/smt/active": "0",
    f"{CPU}/vulnerabilities/mds": "Not affected",
    f"{NODE}/node0/cpulist": "0-1",
    f"{NODE}/node0/meminfo": "Node 0 MemTotal: 1024 kB",
    f"{NODE}/node0/distance": "10",
    **{
        f"{CPU}/cpu{cpu}/{name}": text
        for cpu in range(2)
        for name, text in {
            "topology/physical_package_id": "0",
            "topology/die_id": "0",
            "topology/core_id": str(cpu),
            "topology/thread_siblings_list": str(cpu),
            "topology/core_cpus_list": str(cpu),
            "cache/index0/level": "1",
            "cache/index0/type": "Data",
            "cache/index0/size": "32K",
            "cache/index0/shared_cpu_list": str(cpu),
            "cpufreq/scaling_driver": "intel_pstate",
            "cpufreq/scaling_governor": "performance",
            "cpufreq/cpuinfo_max_freq": "3800000",
            "acpi_cppc/highest_perf": "40",
            "microcode/version": "0x1",
        }.items()
    },
}

NASTY_TEXTS = (
    b"", b"\n", b"\0" * 64, b"\xff\xfe\xfd", b"-1", b"9" * 5000, b"1e999", b"0-99999999999", b"0-8191", b"3-1,,",
    b"(null)", b"nan", b"inf", b"[]", b"[[madvise]]", b":::::", b"\x1b[2Jgone", "٣".encode(), b"a" * 100_000,
    b"processor : 0\n" * 50, b"0::/../../..\n", b"- - - - - - - - -\n", b"flags : amx_tile\n",
    b"MemTotal: 99999999999999999999 kB",
)  # fmt: skip

damage = st.one_of(
    st.sampled_from(NASTY_TEXTS),
    st.binary(max_size=200),
    st.sampled_from(("missing", "folder", "loop", "out", "forbidden", "pipe", "cut")),
)


def _write(root: Path, path: str, kind: bytes | str | None) -> None:
    """One file in place of whatever is there: good when kind is None."""
    file, text = root / path, GOOD[path]
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(kind, bytes):
        file.write_bytes(kind)
    elif kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "out":
        file.symlink_to("/proc/self/status")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind != "missing":
        file.write_text(text[: len(text) // 2] if kind == "cut" else text)
        file.chmod(0 if kind == "forbidden" else 0o644)


def _build(root: Path, damages: Mapping[str, bytes | str]) -> None:
    for path in GOOD:
        _write(root, path, damages.get(path))


@contextmanager
def _damaged(root: Path, damages: Mapping[str, bytes | str]) -> Iterator[None]:
    for path, kind in damages.items():
        _write(root, path, kind)
    try:
        yield
    finally:
        for path in damages:
            _write(root, path, None)


def _check(found: Fingerprint) -> None:
    data = msgspec.json.encode(found)
    VALIDATOR.validate(json.loads(data))
    assert msgspec.json.decode(data, type=Fingerprint) == found
    text = render_fingerprint(found)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert match(found, found).level in {"equal", "incomparable"}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("machine")
    _build(root, {})
    return root


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages=st.dictionaries(st.sampled_from(sorted(GOOD)), damage, max_size=8))
def test_damaged_files_never_crash_and_never_leave_the_schema(machine: Path, damages: dict[str, bytes | str]) -> None:
    with _damaged(machine, damages):
        found = probe(machine)
    _check(found)
    if not damages:
        assert (found.topology.cores, found.limits.quota_cpus, found.isa.avx512) == (2, 1.5, True)


@pytest.mark.parametrize("kind", [*NASTY_TEXTS, "folder", "loop", "out", "forbidden", "pipe", "missing"])
def test_a_machine_whose_every_file_is_damaged_has_a_fingerprint(tmp_path: Path, kind: bytes | str) -> None:
    _build(tmp_path, dict.fromkeys(GOOD, kind))
    _check(probe(tmp_path))


@pytest.mark.parametrize("path", sorted(GOOD))
def test_a_missing_file_changes_only_what_it_told(machine: Path, path: str) -> None:
    with _damaged(machine, {path: "missing"}):
        found = probe(machine)
    _check(found)
    assert found.topology.threads_online == 2
    assert found.topology.packages == 1
    assert found.topology.cores == 2


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damages=st.dictionaries(st.sampled_from(sorted(GOOD)), damage, max_size=4),
    cpus=st.one_of(st.none(), st.sampled_from(["0", "0-1", "1", "7", "", "x", "0-99999999999"])),
    threads=st.one_of(st.none(), st.integers(-1, 5)),
    numa=st.one_of(st.none(), st.integers(-1, 2)),
    available=st.frozensets(st.integers(0, 4)),
)
def test_a_placement_keeps_its_promises_or_says_why_not(
    machine: Path,
    *,
    damages: dict[str, bytes | str],
    cpus: str | None,
    threads: int | None,
    numa: int | None,
    available: frozenset[int],
) -> None:
    with _damaged(machine, damages):
        found = probe(machine)
    try:
        chosen = select_cpus(found, cpus=cpus, threads=threads, numa=numa, available=available)
    except UsageError as error:
        event(f"refused: {str(error)[:9]}")
        return
    assert chosen.threads == len(chosen.cpus) >= 1
    assert set(chosen.cpus) <= available
    assert not set(chosen.cpus) & set(chosen.housekeeping)
    assert found.topology.online is None or set(chosen.cpus) <= set(found.topology.online)
    assert found.limits.quota_cpus is None or len(chosen.cpus) <= max(1, found.limits.quota_cpus)


@given(st.frozensets(st.integers(0, MAX_CPUS - 1), max_size=200))
def test_cpu_lists_read_back_what_was_written(ids: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(ids)) == ids


@given(st.text(max_size=60))
def test_any_text_is_a_bounded_list_or_unknown(text: str) -> None:
    for ids in (parse_cpu_list(text), parse_cpu_mask(text)):
        assert ids is None or all(0 <= cpu < MAX_CPUS for cpu in ids)


class _OneFile:
    def __init__(self, text: str) -> None:
        self._text = text

    def text(self, path: str) -> str | None:
        return self._text

    def names(self, path: str) -> tuple[str, ...]:
        return ()

    def place(self, path: str) -> str | None:
        return None


@given(st.text(max_size=400))
def test_any_text_can_be_parsed_as_cpuinfo_and_mounts(text: str) -> None:
    processors = parse_cpuinfo(text)
    files = _OneFile(text)
    assert read_cpu(files, processors, (0,)) is not None
    assert all(".." not in mount.folder.split("/") for mount in parse_mounts(files))
    assert all(path.startswith("/") for path in parse_membership(files).values())
