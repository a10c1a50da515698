from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from perfguard.host.identity import machine_id, machine_line, match, stack_id
from perfguard.host.probe import read_fingerprint
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import CompatibilityLevel, Fingerprint, SoftwareFacts
from perfguard.report.terminal.fingerprint import render_fingerprint
from tests.changed_values import replace

if TYPE_CHECKING:
    from tests.unit.host.conftest import MemoryFiles

CPU = "sys/devices/system/cpu"
STACK = SoftwareFacts(
    python_version="3.11.7",
    torch_version="2.13.0+cpu",
    openmp_runtimes=("libgomp.so.1",),
    malloc_libraries=(),
    environment={},
)


def test_the_machine_id_is_readable_and_short(server: MemoryFiles) -> None:
    assert re.fullmatch(r"intel-[a-z0-9_]+-2s4c-[0-9a-f]{8}", read_fingerprint(server).machine_id)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{CPU}/cpu3/cpufreq/scaling_cur_freq", "3700000"),
        ("proc/loadavg", "99.0 1 1 1/1 1"),
        ("proc/stat", "cpu 900 0 100 700 0 0 0 0 0 0\n"),
        ("proc/meminfo", "MemTotal: 130000 kB\n"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 65000 kB\n"),
        ("proc/sys/kernel/osrelease", "6.9.0\n"),
        (f"{CPU}/cpu0/topology/ppin", "0x1234567890"),
        ("sys/class/dmi/id/product_serial", "SERIAL-42"),
        (f"{CPU}/cpu5/cpufreq/scaling_governor", "powersave"),
    ],
)
def test_the_machine_id_does_not_follow_what_changes_between_boots(server: MemoryFiles, path: str, text: str) -> None:
    before = read_fingerprint(server).machine_id
    server.contents[path] = text
    assert read_fingerprint(server).machine_id == before


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{CPU}/online", "0-6"),
        (f"{CPU}/cpu0/cache/index0/size", "32K"),
        (f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq", "3900000"),
        ("sys/devices/system/node/node4/meminfo", "Node 4 MemTotal: 1048576 kB\n"),
        ("sys/devices/system/node/node0/distance", "10 31 24\n"),
    ],
)
def test_the_machine_id_follows_what_changes_timings(server: MemoryFiles, path: str, text: str) -> None:
    before = read_fingerprint(server).machine_id
    server.contents[path] = text
    assert read_fingerprint(server).machine_id != before


def test_the_machine_id_of_a_guest_does_not_follow_memory_that_comes_and_goes(server: MemoryFiles) -> None:
    server.contents["proc/cpuinfo"] = re.sub(r"(?m)^(flags\s*:.*)$", r"\1 hypervisor", server.contents["proc/cpuinfo"])
    before = read_fingerprint(server)
    assert before.cpu.hypervisor
    server.contents["sys/devices/system/node/node4/meminfo"] = "Node 4 MemTotal: 1048576 kB\n"
    after = read_fingerprint(server)
    assert after.topology != before.topology
    assert after.machine_id == before.machine_id
    assert match(before, after).level is CompatibilityLevel.EQUAL


def test_the_machine_id_follows_the_usable_instruction_sets(server: MemoryFiles) -> None:
    before = read_fingerprint(server).machine_id
    server.contents["proc/cpuinfo"] = server.contents["proc/cpuinfo"].replace(" amx_bf16", "")
    assert read_fingerprint(server).machine_id != before


def test_no_serial_number_or_host_name_enters_the_fingerprint(server: MemoryFiles) -> None:
    secrets = {
        f"{CPU}/cpu0/topology/ppin": "0xfeedbeef",
        "sys/class/dmi/id/product_serial": "SERIAL-42",
        "sys/class/dmi/id/product_uuid": "UUID-42",
        "proc/sys/kernel/hostname": "secret-host",
        "sys/class/net/eth0/address": "aa:bb:cc:dd:ee:ff",
    }
    server.contents |= secrets
    shown = repr(read_fingerprint(server))
    assert not [secret for secret in secrets.values() if secret in shown]


def test_the_stack_id_is_readable_and_unknown_without_an_interpreter() -> None:
    assert stack_id(None) is None
    assert re.fullmatch(r"torch2\.13\.0-py3\.11-[0-9a-f]{8}", stack_id(STACK) or "")


@pytest.mark.parametrize(
    "other",
    [
        replace(STACK, torch_git_version="abc"),
        replace(STACK, malloc_libraries=("libjemalloc.so.2",)),
        replace(STACK, environment={"ONEDNN_MAX_CPU_ISA": "AVX2"}),
        replace(STACK, flushes_denormals=True),
    ],
)
def test_another_stack_has_another_id(other: SoftwareFacts) -> None:
    assert stack_id(other) != stack_id(STACK)


def test_pins_of_the_run_do_not_make_another_stack() -> None:
    pinned = replace(
        STACK,
        environment={"OMP_NUM_THREADS": "4", "PYTHONHASHSEED": "0", "TORCHINDUCTOR_CACHE_DIR": "x"},
        intra_op_threads=4,
    )
    assert stack_id(pinned) == stack_id(STACK)


@pytest.fixture
def found(server: MemoryFiles) -> Fingerprint:
    return read_fingerprint(server, software=STACK)


def test_a_fingerprint_equals_itself(found: Fingerprint) -> None:
    answer = match(found, found)
    assert (answer.level, answer.reasons) == (CompatibilityLevel.EQUAL, ())


def test_another_machine_is_incomparable_and_the_reason_says_in_what(found: Fingerprint) -> None:
    other = replace(found, cpu=replace(found.cpu, brand="Intel(R) Xeon(R) Platinum 8490H"))
    answer = match(found, other)
    assert answer.level is CompatibilityLevel.INCOMPARABLE
    assert answer.reasons == (
        fact("host.other_machine", part="brand", first=found.cpu.brand, second=other.cpu.brand, is_first=True),
    )


@pytest.mark.parametrize("field", ["governor", "turbo", "driver"])
def test_another_speed_setting_is_incomparable(found: Fingerprint, field: str) -> None:
    answer = match(found, replace(found, state=replace(found.state, **{field: None})))
    assert answer.level is CompatibilityLevel.INCOMPARABLE
    setting = {"driver": "frequency_driver"}.get(field, field)
    assert (answer.reasons[0].values["setting"], answer.reasons[0].values["second"]) == (setting, None)


def test_another_quota_is_incomparable(found: Fingerprint) -> None:
    limits = replace(found.limits, quota_cpus=2.0)
    assert match(found, replace(found, limits=limits)).level is CompatibilityLevel.INCOMPARABLE


def test_microcode_kernel_and_software_leave_timings_comparable_with_a_reason(found: Fingerprint) -> None:
    other = replace(
        found,
        cpu=replace(found.cpu, microcode="0x2b000590"),
        state=replace(found.state, kernel="6.9.1"),
        software=replace(STACK, torch_version="2.14.0"),
    )
    answer = match(found, other)
    assert answer.level is CompatibilityLevel.COMPARABLE
    assert len(answer.reasons) == 3
    assert fact("host.other_setting", setting="microcode", first="0x2b000181", second="0x2b000590") in answer.reasons


def test_the_worst_reason_comes_first(found: Fingerprint) -> None:
    other = replace(found, state=replace(found.state, kernel="6.9.1", governor="powersave"))
    assert match(found, other).reasons[0].values["setting"] == "governor"


def test_match_is_symmetric_in_its_level(found: Fingerprint) -> None:
    other = replace(found, software=None)
    assert match(found, other).level is match(other, found).level is CompatibilityLevel.COMPARABLE


def test_two_unknown_machines_are_not_called_equal(found: Fingerprint) -> None:
    unknown = replace(found, cpu=replace(found.cpu, vendor=None))
    assert match(unknown, unknown).level is CompatibilityLevel.INCOMPARABLE


def test_the_id_agrees_with_the_facts_it_is_a_hash_of(found: Fingerprint) -> None:
    assert found.machine_id == machine_id(found)
    assert machine_id(replace(found, state=replace(found.state, load_1min=9.0))) == found.machine_id


def test_the_line_for_people_has_the_name_alone_and_the_fingerprint_what_the_cpu_lacks(found: Fingerprint) -> None:
    cpu = replace(found.cpu, microarchitecture="zen3", resembles="zen4", hidden_flags=("flush_l1d", "pku"))
    masked = replace(found, cpu=cpu)
    assert "(zen4)" in machine_line(masked)
    assert "flush_l1d" not in machine_line(masked)
    assert "zen3 (zen4 without flush_l1d, pku)" in render_fingerprint(masked)
