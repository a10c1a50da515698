from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from archspec.cpu import TARGETS
from msgspec.structs import asdict

from perfguard.host.parsers.cpu import microarchitecture, resembles
from perfguard.host.probe import read_fingerprint
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import (
    AmxPermission,
    CoreClass,
    IsaSource,
    MemoryKind,
    QuotaState,
    SoftwareFacts,
)

if TYPE_CHECKING:
    from tests.unit.host.conftest import MemoryFiles

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def test_packages_come_from_the_package_id_and_cores_from_the_siblings(server: MemoryFiles) -> None:
    topology = read_fingerprint(server).topology
    assert (topology.packages, topology.dies, topology.cores, topology.threads_online) == (2, 2, 4, 8)
    assert topology.smt is True
    assert topology.hybrid is False
    assert [cpu.core for cpu in topology.cpus] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_offline_siblings_do_not_count_as_threads(server: MemoryFiles) -> None:
    server.contents[f"{CPU}/online"] = "0-3\n"
    topology = read_fingerprint(server).topology
    assert (topology.cores, topology.threads_online, topology.smt) == (4, 4, False)
    assert topology.offline == (4, 5, 6, 7)
    assert topology.numa_nodes[0].cpus == (0, 1)


def test_cpu0_and_node0_may_be_offline(server: MemoryFiles) -> None:
    server.contents[f"{CPU}/online"] = "2-3,6-7\n"
    for path in [path for path in server.contents if path.startswith((f"{CPU}/cpu0/", f"{NODE}/node0/"))]:
        del server.contents[path]
    found = read_fingerprint(server)
    assert (found.topology.packages, found.topology.cores) == (1, 2)
    assert [node.id for node in found.topology.numa_nodes] == [1, 4]
    assert found.state.governor == "performance"
    assert found.caches[0].instances == 2


def test_without_an_online_file_the_cpus_with_a_topology_are_online(server: MemoryFiles) -> None:
    del server.contents[f"{CPU}/online"]
    assert read_fingerprint(server).topology.online == tuple(range(8))


def test_an_empty_online_file_is_not_a_machine_without_cpus(server: MemoryFiles) -> None:
    server.contents[f"{CPU}/online"] = ""
    assert read_fingerprint(server).topology.threads_online == 8


def test_without_sibling_lists_cores_come_from_the_core_ids(server: MemoryFiles) -> None:
    for cpu in range(8):
        del server.contents[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"]
        server.contents[f"{CPU}/cpu{cpu}/topology/core_id"] = str(cpu % 2)
    assert read_fingerprint(server).topology.cores == 4


def test_cores_of_one_number_on_two_dies_are_two(server: MemoryFiles) -> None:
    for cpu in range(8):
        del server.contents[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"]
        server.contents[f"{CPU}/cpu{cpu}/topology/core_id"] = "0"
        server.contents[f"{CPU}/cpu{cpu}/topology/die_id"] = str(cpu % 2)
    topology = read_fingerprint(server).topology
    assert (topology.packages, topology.dies, topology.cores) == (2, 4, 4)
    assert [cpu.core for cpu in topology.cpus] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_cores_are_unknown_when_nothing_tells(server: MemoryFiles) -> None:
    for cpu in range(8):
        del server.contents[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"]
    found = read_fingerprint(server)
    assert found.topology.cores is None
    assert fact("host.no_cores") in found.notes


def test_a_node_without_cpus_keeps_its_memory_and_distances(server: MemoryFiles) -> None:
    node = read_fingerprint(server).topology.numa_nodes[2]
    assert (node.id, node.cpus, node.memory_bytes, node.distances) == (4, (), 262144 * 1024, (24, 24, 10))
    assert node.memory_kind is MemoryKind.UNKNOWN


def test_memory_that_firmware_calls_faster_is_hbm(server: MemoryFiles) -> None:
    for node, speed in ((0, 200_000), (1, 200_000), (4, 800_000)):
        server.contents[f"{NODE}/node{node}/access0/initiators/read_bandwidth"] = str(speed)
    kinds = [node.memory_kind for node in read_fingerprint(server).topology.numa_nodes]
    assert kinds == [MemoryKind.DRAM, MemoryKind.DRAM, MemoryKind.HBM]


def test_the_brand_has_single_spaces_and_the_name_is_archspecs(server: MemoryFiles) -> None:
    cpu = read_fingerprint(server).cpu
    assert cpu.brand == "Intel(R) Xeon(R) Platinum 8480+"
    assert (cpu.family, cpu.model, cpu.stepping, cpu.microcode) == (6, 143, 8, "0x2b000181")
    assert cpu.hypervisor is False


def _sapphire_rapids_without(*hidden: str) -> list[dict[str, str]]:
    flags = TARGETS["sapphirerapids"].features - set(hidden)
    return [{"vendor_id": "GenuineIntel", "cpu family": "6", "model": "143", "flags": " ".join(sorted(flags))}]


def test_a_hidden_flag_leaves_the_older_name_and_says_what_the_cpu_resembles() -> None:
    whole, masked = _sapphire_rapids_without(), _sapphire_rapids_without("waitpkg")
    assert (microarchitecture(whole), resembles(whole)) == ("sapphirerapids", None)
    assert (microarchitecture(masked), resembles(masked)) == ("icelake", ("sapphirerapids", ("waitpkg",)))


def test_a_cpu_that_lacks_most_of_what_a_newer_name_adds_does_not_resemble_it() -> None:
    masked = _sapphire_rapids_without("waitpkg", "amx_tile", "amx_int8", "amx_bf16", "serialize", "movdiri")
    assert (microarchitecture(masked), resembles(masked)) == ("icelake", None)


def test_the_isa_is_what_the_flags_allow_and_not_what_the_model_could_do(server: MemoryFiles) -> None:
    full = read_fingerprint(server).isa
    assert full.amx_bf16 is True
    assert full.amx_fp16 is False
    assert full.onednn is not None
    assert full.onednn.level == "avx512_core_amx"
    old_kernel = server.contents["proc/cpuinfo"].replace(" amx_tile amx_int8 amx_bf16", "")
    server.contents["proc/cpuinfo"] = old_kernel.replace(" avx512_fp16", "")
    without = read_fingerprint(server).isa
    assert without.amx_tile is False
    assert without.fp16 is False
    assert without.onednn is not None
    assert without.onednn.level == "avx512_core_bf16"


def test_a_feature_counts_only_when_every_cpu_has_it(server: MemoryFiles) -> None:
    text = server.contents["proc/cpuinfo"]
    server.contents["proc/cpuinfo"] = text.replace(" avx512f ", " ", 1)
    isa = read_fingerprint(server).isa
    assert isa.avx512 is False
    assert isa.aten is not None
    assert isa.aten.level == "AVX2"


def test_a_denied_amx_permission_takes_amx_away(server: MemoryFiles) -> None:
    isa = read_fingerprint(server, permission=AmxPermission.DENIED).isa
    assert isa.amx_tile is False
    assert isa.onednn is not None
    assert isa.onednn.level == "avx512_core_fp16"


def test_what_the_interpreter_measured_beats_what_the_flags_suggest(server: MemoryFiles) -> None:
    isa = read_fingerprint(server, software=SoftwareFacts(aten_isa="AVX2")).isa
    assert isa.aten is not None
    assert (isa.aten.level, isa.aten.source) == ("AVX2", IsaSource.MEASURED)


def test_mkl_on_amd_is_unknown_until_it_is_measured(server: MemoryFiles) -> None:
    server.contents["proc/cpuinfo"] = server.contents["proc/cpuinfo"].replace("GenuineIntel", "AuthenticAMD")
    found = read_fingerprint(server)
    assert found.isa.mkl is None
    assert fact("host.amd") in found.notes


def test_state_is_read(server: MemoryFiles) -> None:
    state = read_fingerprint(server).state
    assert (state.governor, state.driver, state.turbo) == ("performance", "intel_pstate", True)
    assert (state.thp, state.numa_balancing, state.aslr) == ("madvise", True, 2)
    assert state.kernel == "6.8.0-45-generic"
    assert state.swap_used_bytes == 512 * 1024
    assert state.steal_ratio == pytest.approx(0.1)
    assert state.frequency[0].cpus == tuple(range(8))


def test_an_empty_governor_is_unknown(server: MemoryFiles) -> None:
    for cpu in range(8):
        server.contents[f"{CPU}/cpu{cpu}/cpufreq/scaling_governor"] = ""
    assert read_fingerprint(server).state.governor is None


def test_a_turbo_switch_of_the_other_drivers_is_read(server: MemoryFiles) -> None:
    del server.contents[f"{CPU}/intel_pstate/no_turbo"]
    server.contents[f"{CPU}/cpufreq/boost"] = "0\n"
    assert read_fingerprint(server).state.turbo is False


def test_the_tightest_quota_of_all_levels_counts(server: MemoryFiles) -> None:
    server.contents["proc/self/cgroup"] = "0::/app/inner\n"
    server.contents["sys/fs/cgroup/app/inner/cpu.max"] = "400000 100000\n"
    server.contents["sys/fs/cgroup/app/cpu.max"] = "150000 100000\n"
    limits = read_fingerprint(server).limits
    assert (limits.quota, limits.quota_cpus) == (QuotaState.LIMITED, 1.5)
    assert (limits.cgroup_version, limits.allowed_cpus) == (2, tuple(range(8)))


def test_version_1_quotas_and_cpusets_are_read(server: MemoryFiles) -> None:
    server.contents["proc/self/cgroup"] = "4:cpu,cpuacct:/job\n3:cpuset:/job\n0::/\n"
    server.contents["proc/self/mountinfo"] = (
        "30 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "31 1 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    )
    server.contents["sys/fs/cgroup/cpu/job/cpu.cfs_quota_us"] = "200000\n"
    server.contents["sys/fs/cgroup/cpu/job/cpu.cfs_period_us"] = "100000\n"
    server.contents["sys/fs/cgroup/cpu/job/cpu.stat"] = "nr_periods 9\nnr_throttled 4\n"
    server.contents["sys/fs/cgroup/cpuset/job/cpuset.cpus"] = "0-3\n"
    limits = read_fingerprint(server).limits
    assert (limits.cgroup_version, limits.quota_cpus, limits.throttled_periods) == (1, 2.0, 4)
    assert limits.allowed_cpus == (0, 1, 2, 3)


def test_a_container_mount_shows_its_own_group_at_the_top(server: MemoryFiles) -> None:
    server.contents["proc/self/cgroup"] = "0::/docker/abc\n"
    server.contents["proc/self/mountinfo"] = "30 1 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    server.contents["sys/fs/cgroup/cpu.max"] = "250000 100000\n"
    assert read_fingerprint(server).limits.quota_cpus == 2.5


@pytest.mark.parametrize("text", ["", "max", "0 0", "100000 0", "nonsense here", "-5 100000", "9" * 40 + " 1"])
def test_a_nonsense_quota_is_unknown(server: MemoryFiles, text: str) -> None:
    server.contents["sys/fs/cgroup/app/cpu.max"] = text
    limits = read_fingerprint(server).limits
    assert (limits.quota, limits.quota_cpus) == (QuotaState.UNKNOWN, None)


def test_a_group_path_that_climbs_out_is_not_followed(server: MemoryFiles) -> None:
    server.contents["proc/self/cgroup"] = "0::/../../etc\n"
    server.contents["etc/cpu.max"] = "100000 100000\n"
    assert read_fingerprint(server).limits.quota_cpus is None


def _hybrid(server: MemoryFiles) -> None:
    for cpu in range(8):
        is_fast = cpu < 4
        server.contents[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = (
            f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" if is_fast else str(cpu)
        )
        server.contents[f"{CPU}/cpu{cpu}/cache/index0/size"] = "48K" if is_fast else "32K"
        server.contents[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = (
            ("5000000", "5200000")[cpu % 2] if is_fast else "3900000"
        )
    server.contents["proc/cpuinfo"] = server.contents["proc/cpuinfo"].replace("Xeon(R) Platinum", "Core(TM)")


def _classes(server: MemoryFiles) -> dict[CoreClass, tuple[int, ...]]:
    return {group.core_class: group.cpus for group in read_fingerprint(server).topology.core_classes}


def test_kinds_of_cores_show_in_their_nearest_caches(server: MemoryFiles) -> None:
    _hybrid(server)
    assert _classes(server) == {CoreClass.PERFORMANCE: (0, 1, 2, 3), CoreClass.EFFICIENCY: (4, 5, 6, 7)}
    assert read_fingerprint(server).topology.hybrid is True


def test_favoured_cores_do_not_make_a_hybrid(server: MemoryFiles) -> None:
    for cpu in range(8):
        server.contents[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "4500000" if cpu in {1, 5} else "4300000"
    assert read_fingerprint(server).topology.hybrid is False


def test_efficiency_cores_beyond_the_l3_are_low_power_ones(server: MemoryFiles) -> None:
    _hybrid(server)
    for cpu in range(6):
        server.contents[f"{CPU}/cpu{cpu}/cache/index3/level"] = "3"
        server.contents[f"{CPU}/cpu{cpu}/cache/index3/type"] = "Unified"
    assert _classes(server)[CoreClass.LOW_POWER] == (6, 7)


def test_the_kernels_own_lists_of_core_kinds_win(server: MemoryFiles) -> None:
    server.contents["sys/devices/cpu_core/cpus"] = "4-7\n"
    server.contents["sys/devices/cpu_atom/cpus"] = "0-1\n"
    server.contents["sys/devices/cpu_lowpower/cpus"] = "2-3\n"
    assert _classes(server) == {
        CoreClass.PERFORMANCE: (4, 5, 6, 7),
        CoreClass.EFFICIENCY: (0, 1),
        CoreClass.LOW_POWER: (2, 3),
    }


def test_arm_kinds_come_from_the_part_numbers(memory_files: type[Any]) -> None:
    parts, capacities = ("0xd80", "0xd80", "0xd85", "0xd85"), (280, 280, 1000, 1024)
    files = memory_files(
        {
            "proc/cpuinfo": "".join(
                f"processor : {cpu}\nFeatures : fp asimd asimddp bf16\nCPU implementer : 0x41\nCPU part : {part}\n\n"
                for cpu, part in enumerate(parts)
            ),
            f"{CPU}/online": "0-3",
            **{f"{CPU}/cpu{cpu}/cpu_capacity": str(capacity) for cpu, capacity in enumerate(capacities)},
        }
    )
    assert _classes(files) == {CoreClass.PERFORMANCE: (2, 3), CoreClass.EFFICIENCY: (0, 1)}
    found = read_fingerprint(files)
    assert found.cpu.architecture == "aarch64"
    assert (found.isa.bf16, found.isa.avx2, found.isa.amx_permission) == (True, False, AmxPermission.NOT_APPLICABLE)
    assert fact("host.arm") in found.notes


def test_a_machine_that_says_nothing_is_unknown_everywhere(memory_files: type[Any]) -> None:
    found = read_fingerprint(memory_files({}))
    assert all(value is None for value in asdict(found.cpu).values())
    assert found.topology.threads_online is None
    assert found.topology.packages is None
    assert found.topology.hybrid is None
    assert found.state.governor is None
    assert found.machine_id.startswith("unknown-unknown-")
