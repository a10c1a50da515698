"""Every recorded machine against the facts that were read out of it by other means.

The recordings lie beside the repository and are not part of it; without them these tests are skipped.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfguard.errors import UsageError
from perfguard.host.hardware_arms import cpus_on
from perfguard.host.identity import match
from perfguard.host.parsers.cpu import microarchitecture, parse_cpuinfo
from perfguard.host.parsers.reading import extract
from perfguard.host.placement import sockets_of
from perfguard.host.probe import probe
from perfguard.records.machine.cpuset import format_cpu_list, parse_cpu_list
from perfguard.records.machine.fingerprint import CompatibilityLevel, CoreClass, Fingerprint, MemoryKind, QuotaState
from perfguard.records.ranks import Ranks
from perfguard.records.tasks import Hardware
from perfguard.report.terminal.fingerprint import render_fingerprint

MACHINES = Path(__file__).resolve().parents[3] / "shared" / "data" / "machines"
HEADS = MACHINES / "archspec-json-targets"
SEVERAL = "cri-rm-clx-snc2-pmem_skx-4s_i9-7900X"

CORES_BY_THE_KERNELS_MASKS = {"fake-gold6230-memory-initiators": 8}
"""facts.json counts (package, core id) there; core_cpus, and hwloc's own expected output, say eight cores."""

ALSO_HYBRID = {"arm-cortex-X3-A715-A710-A510", "arm-nvidia-gb10-dgx-spark"}
INTEL_HYBRID = {"i5-L16G7-lakefield-hybrid", "i7-1370P-raptorlake-hybrid"}
NOT_HEADS_OF_LINUX_NAMES = {"power8le": "power8"}
"""cpuinfo does not say the byte order, so POWER is named without it."""

pytestmark = pytest.mark.skipif(not MACHINES.is_dir(), reason=f"no recorded machines at {MACHINES}")


def _facts_files() -> list[Path]:
    return sorted(MACHINES.glob("*/facts*.json")) if MACHINES.is_dir() else []


def _name(facts: Path) -> str:
    part = facts.stem.removeprefix("facts").lstrip("-")
    return f"{facts.parent.name}/{part}" if part else facts.parent.name


@pytest.fixture(scope="module", autouse=True)
def unpacked_in_memory() -> Iterator[None]:
    """Recordings are tens of thousands of small files, which a disk takes a minute to make."""
    with pytest.MonkeyPatch.context() as patch:
        if (memory := Path("/dev/shm")).is_dir():
            patch.setattr(tempfile, "tempdir", str(memory))
        yield


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("several")
    extract(MACHINES / SEVERAL / "sysfs.tar.bz2", target)
    return target / "sysfs"


@pytest.fixture(scope="module")
def fingerprints(several: Path) -> dict[str, Fingerprint]:
    found = {}
    for facts in _facts_files():
        name = _name(facts)
        found[name] = probe(several / name.rpartition("/")[2] if "/" in name else facts.parent)
    return found


@pytest.fixture(params=_facts_files(), ids=_name)
def machine(request: pytest.FixtureRequest, fingerprints: dict[str, Fingerprint]) -> tuple[str, Fingerprint, Any]:
    name = _name(request.param)
    return name, fingerprints[name], json.loads(request.param.read_text(encoding="utf-8"))


Machine = tuple[str, Fingerprint, Any]


def _list(cpus: tuple[int, ...] | None) -> str | None:
    return None if cpus is None else format_cpu_list(cpus)


def _canonical(text: str | None) -> str | None:
    ids = None if text is None else parse_cpu_list(text)
    return None if ids is None else format_cpu_list(ids)


def test_counts_agree(machine: Machine) -> None:
    name, found, facts = machine
    topology = found.topology
    assert topology.packages == facts["n_packages"]
    assert topology.cores == CORES_BY_THE_KERNELS_MASKS.get(name, facts["n_cores"])
    assert topology.threads_online == facts["threads_online"]
    assert topology.dies == facts["n_dies"]
    assert topology.smt == (topology.threads_online > topology.cores)


def test_cpu_sets_agree(machine: Machine) -> None:
    _, found, facts = machine
    assert _list(found.topology.online) == facts["online"]
    assert _list(found.topology.possible) == _canonical(facts["possible"])
    assert _list(found.topology.offline) == _canonical(facts["offline"])
    assert _list(found.topology.isolated) == _canonical(facts["isolated"])


def test_packages_hold_the_cpus_that_they_should(machine: Machine) -> None:
    _, found, facts = machine
    packages: dict[str, list[int]] = {}
    for cpu in found.topology.cpus:
        packages.setdefault(str(cpu.package), []).append(cpu.id)
    assert {package: format_cpu_list(cpus) for package, cpus in packages.items()} == facts["packages"]


def test_smt_widths_agree(machine: Machine) -> None:
    name, found, facts = machine
    threads: dict[int | None, int] = {}
    for cpu in found.topology.cpus:
        threads[cpu.core] = threads.get(cpu.core, 0) + 1
    expected = [1] if name in CORES_BY_THE_KERNELS_MASKS else facts["threads_per_core"]
    assert sorted(set(threads.values())) == expected


def test_caches_agree(machine: Machine) -> None:
    _, found, facts = machine
    counted: dict[str, dict[str, int | None]] = {}
    suffixes = {"data": "d", "instruction": "i", "unified": ""}
    for cache in found.caches:
        sizes = counted.setdefault(f"L{cache.level}{suffixes[cache.kind]}", {})
        size = "null" if cache.size_bytes is None else f"{cache.size_bytes // 1024}K"
        sizes[size] = sizes.get(size, 0) + (cache.instances or 0)
    assert counted == facts["caches"]


def test_numa_nodes_agree(machine: Machine) -> None:
    _, found, facts = machine
    nodes = {
        str(node.id): {
            "cpus": _list(node.cpus),
            "mem_kB": None if node.memory_bytes is None else node.memory_bytes // 1024,
            "distance": " ".join(map(str, node.distances or ())),
        }
        for node in found.topology.numa_nodes
    }
    assert nodes == {node: known | {"distance": known["distance"] or ""} for node, known in facts["numa"].items()}
    assert [node for node, known in nodes.items() if not known["cpus"]] == facts["numa_cpuless"]


def test_frequency_settings_agree(machine: Machine) -> None:
    _, found, facts = machine
    expected = {
        known["cpus"]: (
            known["driver"],
            known["governor"] or None,
            *(int(known[key]) * 1000 if known[key] else None for key in ("min_khz", "max_khz", "base_khz")),
        )
        for known in facts["cpufreq"]
    }
    assert {
        format_cpu_list(domain.cpus): (domain.driver, domain.governor, domain.min_hz, domain.max_hz, domain.base_hz)
        for domain in found.state.frequency
    } == expected


def test_turbo_agrees(machine: Machine) -> None:
    _, found, facts = machine
    no_turbo = (facts["intel_pstate"] or {}).get("no_turbo")
    expected = no_turbo == "0" if no_turbo is not None else {None: None, "1": True, "0": False}[facts["cpufreq_boost"]]
    assert found.state.turbo is expected


def test_the_processor_agrees_and_is_unknown_without_cpuinfo(machine: Machine) -> None:
    _, found, facts = machine
    known = facts["cpuinfo"] or {}
    assert found.cpu.brand == (" ".join(known["model name"].split()) if known.get("model name") else None)
    if known.get("vendor_id"):
        assert found.cpu.vendor == known["vendor_id"]
    for name, key in (("family", "cpu family"), ("model", "model"), ("stepping", "stepping")):
        assert getattr(found.cpu, name) == (int(known[key]) if known.get(key) else None)
    if known.get("microcode"):
        assert found.cpu.microcode == known["microcode"]


def test_usable_features_agree(machine: Machine) -> None:
    _, found, facts = machine
    interesting = set(facts.get("flags_of_interest") or ()) - {"hwp", "aperfmperf", "hypervisor", "ht"}
    assert interesting <= set(found.isa.features or ())


def test_only_hybrid_machines_are_hybrid(machine: Machine) -> None:
    name, found, _ = machine
    assert found.topology.hybrid is (name in ALSO_HYBRID | INTEL_HYBRID)


def test_the_text_shows_a_line_for_everything_and_no_python_words(machine: Machine) -> None:
    text = render_fingerprint(machine[1])
    assert machine[1].machine_id in text
    assert not {"None", "True", "False"} & set(text.split())


@pytest.mark.parametrize("name", ["i7-1370P-raptorlake-hybrid", "vm-broadwell-8vcpu", "i5-M560-arrandale"])
def test_a_machine_has_the_same_fingerprint_every_time(fingerprints: dict[str, Fingerprint], name: str) -> None:
    assert probe(MACHINES / name) == fingerprints[name]


def test_machines_have_different_ids_unless_they_are_the_same(fingerprints: dict[str, Fingerprint]) -> None:
    ids: dict[str, list[str]] = {}
    for name, found in fingerprints.items():
        ids.setdefault(found.machine_id, []).append(name)
    shared = sorted(names for names in ids.values() if len(names) > 1)
    assert shared == [["opteron-6134-cgroup1-cpuset", "opteron-6134-cgroup2-cpuset"]]


def test_no_two_machines_are_called_comparable(fingerprints: dict[str, Fingerprint]) -> None:
    names = [name for name in fingerprints if name != "opteron-6134-cgroup2-cpuset"]
    for left in names:
        for right in names:
            answer = match(fingerprints[left], fingerprints[right])
            is_known = fingerprints[left].cpu.vendor is not None
            assert (answer.level is CompatibilityLevel.EQUAL) == (left == right and is_known), (left, right)
            assert bool(answer.reasons) == (left != right or not is_known)


def test_ranks_on_any_machine_have_cores_of_their_own_in_one_package_and_node(machine: Machine) -> None:
    _, found, _ = machine
    places = {cpu.id: cpu for cpu in found.topology.cpus}
    nodes = {cpu: node.id for node in found.topology.numa_nodes for cpu in node.cpus or ()}
    sockets = sockets_of(found, found.topology.online or ())
    cores = [core for socket in sockets for core in socket]
    assert sorted(cpu for core in cores for cpu in core) == sorted(found.topology.online or ())
    for socket in sockets:
        homes = {(places[cpu].package if cpu in places else None, nodes.get(cpu)) for core in socket for cpu in core}
        assert len(homes) == 1
    if cores:
        alone = Ranks(ranks=len(cores), threads=1).cpus(sockets)
        assert [cpus[0] for cpus in alone] == [core[0] for core in cores]


def test_no_rank_spans_the_sockets_of_a_xeon(fingerprints: dict[str, Fingerprint]) -> None:
    found = fingerprints["xeon-gold-6230-cascadelake-2s"]
    sockets = sockets_of(found, found.topology.online or ())
    (threads,) = {sum(map(len, socket)) for socket in sockets}
    assert len(Ranks(ranks=len(sockets)).cpus(sockets)) == len(sockets) > 1
    with pytest.raises(UsageError):
        Ranks(ranks=1, threads=threads + 1).cpus(sockets)


def test_the_classes_of_the_hybrid_laptop_are_right(fingerprints: dict[str, Fingerprint]) -> None:
    groups = fingerprints["i7-1370P-raptorlake-hybrid"].topology.core_classes
    assert [(group.core_class, group.cores, format_cpu_list(group.cpus)) for group in groups] == [
        (CoreClass.PERFORMANCE, 6, "0-11"),
        (CoreClass.EFFICIENCY, 8, "12-19"),
    ]


def test_on_lakefield_the_fast_core_is_the_last(fingerprints: dict[str, Fingerprint]) -> None:
    groups = fingerprints["i5-L16G7-lakefield-hybrid"].topology.core_classes
    assert [(group.core_class, group.cpus) for group in groups] == [
        (CoreClass.PERFORMANCE, (4,)),
        (CoreClass.EFFICIENCY, (0, 1, 2, 3)),
    ]


@pytest.mark.parametrize("name", ["opteron-6134-cgroup1-cpuset", "opteron-6134-cgroup2-cpuset"])
def test_cpusets_are_found_wherever_they_are_mounted(fingerprints: dict[str, Fingerprint], name: str) -> None:
    limits = fingerprints[name].limits
    assert limits.allowed_cpus == (0, 1, 2, 3, 4, 5)
    assert limits.quota is QuotaState.UNKNOWN


@pytest.mark.parametrize(
    ("name", "kind", "nodes"),
    [
        ("xeon-phi-knl-snc4-hbm", MemoryKind.HBM, [4, 5, 6, 7]),
        ("qemu-hetero-memory-tiers", MemoryKind.HBM, [2, 4]),
        ("qemu-hetero-memory-tiers", MemoryKind.PMEM, [6, 8, 9]),
        ("fake-gold6230-memory-initiators", MemoryKind.PMEM, [7, 10]),
    ],
)
def test_kinds_of_memory_agree_with_hwloc(
    fingerprints: dict[str, Fingerprint], name: str, kind: MemoryKind, nodes: list[int]
) -> None:
    found = fingerprints[name].topology.numa_nodes
    assert [node.id for node in found if node.memory_kind is kind] == nodes


def test_a_folder_of_several_machines_is_not_chosen_from(several: Path) -> None:
    with pytest.raises(UsageError, match="several machines"):
        probe(several)


def test_serial_numbers_in_a_recording_stay_there(fingerprints: dict[str, Fingerprint]) -> None:
    name = "xeon-gold-6230-cascadelake-2s"
    with tarfile.open(MACHINES / name / "sysinfo.tgz") as tar:
        files = (tar.extractfile(member) for member in tar.getmembers() if member.name.endswith("/ppin"))
        serials = {file.read().decode().strip() for file in files if file is not None}
    assert serials
    assert not [serial for serial in serials if serial in repr(fingerprints[name])]


def _heads() -> list[Path]:
    return sorted(HEADS.glob("linux-*")) if HEADS.is_dir() else []


@pytest.mark.parametrize("head", _heads(), ids=lambda path: path.name)
def test_microarchitectures_are_named_as_archspec_expects(head: Path) -> None:
    expected = head.name.split("-", 2)[2]
    found = microarchitecture(parse_cpuinfo(head.read_text(encoding="utf-8")))
    assert found == NOT_HEADS_OF_LINUX_NAMES.get(expected, expected)


@pytest.mark.parametrize(
    ("name", "part", "threads", "cpus"),
    [
        ("i7-1370P-raptorlake-hybrid", Hardware.P_CORES, 6, "0,2,4,6,8,10"),
        ("i7-1370P-raptorlake-hybrid", Hardware.P_CORES, 7, None),
        ("i7-1370P-raptorlake-hybrid", Hardware.E_CORES, 8, "12-19"),
        ("i7-1370P-raptorlake-hybrid", Hardware.ONE_SOCKET, 2, None),
        ("i5-L16G7-lakefield-hybrid", Hardware.P_CORES, 1, "4"),
        ("i5-L16G7-lakefield-hybrid", Hardware.E_CORES, 4, "0-3"),
        ("xeon-gold-6230-cascadelake-2s", Hardware.ONE_SOCKET, 20, ",".join(map(str, range(0, 40, 2)))),
        ("xeon-gold-6230-cascadelake-2s", Hardware.TWO_SOCKETS, 4, "0-3"),
        ("xeon-gold-6230-cascadelake-2s", Hardware.SMT, 4, "0,40,1,41"),
        ("xeon-gold-6230-cascadelake-2s", Hardware.NO_SMT, 4, "0-3"),
        ("xeon-gold-6130-skylake-2s-nosmt", Hardware.SMT, 4, None),
        ("xeon-gold-6130-skylake-2s-nosmt", Hardware.TWO_SOCKETS, 32, "0-31"),
    ],
)  # fmt: skip
def test_parts_of_a_machine_have_the_cpus_that_the_kernel_says(fingerprints, name, part, threads, cpus):
    topology = fingerprints[name].topology
    online = frozenset(topology.online)
    found = cpus_on(part, topology, threads=threads, selected=tuple(online), available=online)
    assert found is None if cpus is None else sorted(found) == sorted(parse_cpu_list(cpus))
