"""The processor: `/proc/cpuinfo` and archspec's table of microarchitectures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from perfguard.host.parsers.parsing import Files, parse_count, parse_words
from perfguard.records.machine.cpuset import MAX_CPUS
from perfguard.records.machine.fingerprint import Cpu

Processor = Mapping[str, str]  # Keys and values of one processor's paragraph

_HYPERVISORS = {
    "kvm": "kvm",
    "qemu": "kvm",
    "amazon ec2": "kvm",
    "google": "kvm",
    "openstack": "kvm",
    "vmware": "vmware",
    "virtualbox": "virtualbox",
    "innotek": "virtualbox",
    "microsoft": "hyperv",
    "xen": "xen",
    "parallels": "parallels",
    "bhyve": "bhyve",
}
_BRAND_KEYS = ("model name", "Model", "cpu model", "Processor")
_DMI_FILES = ("sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name")


def parse_cpuinfo(text: str | None) -> tuple[Processor, ...]:
    """One mapping for each paragraph; keys that come before the first processor make one of their own."""
    processors: list[dict[str, str]] = [{}]
    for line in (text or "").splitlines():
        key, separator, value = line.partition(":")
        name = " ".join(key.split())
        if not separator:
            if not name and processors[-1]:
                processors.append({})
            continue
        if name == "processor" and "processor" in processors[-1]:
            processors.append({})
        if len(processors) > MAX_CPUS:
            break
        processors[-1].setdefault(name, value.strip())
    return tuple(processor for processor in processors if processor)


def processors_by_id(processors: Sequence[Processor]) -> dict[int, Processor]:
    """The processors that carry a number."""
    numbered = ((parse_count(processor.get("processor")), processor) for processor in processors)
    return {number: processor for number, processor in numbered if number is not None and number < MAX_CPUS}


def read_cpu(files: Files, processors: Sequence[Processor], online: Sequence[int]) -> Cpu:
    """The processor; of a heterogeneous machine, the first paragraph that says anything."""
    head = _head(processors)
    architecture = _architecture(processors)
    flags = _flags(head) if architecture == "x86_64" else ()
    hypervisor = "hypervisor" in flags if flags else None
    newer = resembles(processors)
    return Cpu(
        architecture=architecture,
        vendor=_vendor(head, architecture),
        brand=next((words for key in _BRAND_KEYS if (words := parse_words(head.get(key)))), None),
        family=parse_count(head.get("cpu family")),
        model=parse_count(head.get("model")),
        stepping=parse_count(head.get("stepping")),
        microcode=_microcode(files, head, online),
        microarchitecture=microarchitecture(processors),
        resembles=newer.name if newer else None,
        hidden_flags=newer.missing if newer else None,
        hypervisor=hypervisor,
        hypervisor_name=_hypervisor_name(files, head) if hypervisor is not False else None,
    )


def microarchitecture(processors: Sequence[Processor]) -> str | None:
    """Name in archspec's table that fits the paragraphs given; nothing of the running machine enters.

    The rules are those of `archspec.cpu.host()`, which itself can only look at the host it runs on. So a CPU
    that is newer than the table gets the name of the newest one it is compatible with. POWER gets the names
    without `le`: cpuinfo does not say the byte order.
    """
    from archspec.cpu import TARGETS

    head, architecture = _head(processors), _architecture(processors)
    fitting = [target for target in TARGETS.values() if architecture and _fits(target, head, architecture)]
    if not fitting:
        return None
    generic = max((target for target in fitting if target.vendor == "generic"), key=_depth, default=None)
    if part := head.get("CPU part"):
        fitting = [target for target in fitting if target.cpu_part in {part, ""}]
    if generic is None:
        return str(max(fitting, key=_depth).name)
    return str(max((target for target in fitting if target > generic), key=_depth, default=generic).name)


class NewerName(NamedTuple):
    """A name of archspec's table that a CPU would have with a few flags more."""

    name: str
    missing: tuple[str, ...]  # Sorted


def resembles(processors: Sequence[Processor]) -> NewerName | None:
    """A newer name on x86 than `microarchitecture` gives, and the few flags that it lacks.

    A hypervisor that hides one flag makes a Sapphire Rapids look like an Ice Lake. Most of what the newer name adds
    must be there.
    """
    name = microarchitecture(processors)
    if name is None or _architecture(processors) != "x86_64":
        return None
    from archspec.cpu import TARGETS

    head, found = _head(processors), TARGETS[name]
    flags, vendor = _flags(head), _vendor(head, "x86_64")
    best: tuple[int, int, NewerName] | None = None
    for target in TARGETS.values():
        if target.vendor != vendor or not target > found:
            continue
        added, missing = target.features - found.features, target.features - flags
        if missing and 2 * len(missing) < len(added):
            this = len(missing), -len(added), NewerName(str(target.name), tuple(sorted(missing)))
            best = min(best or this, this)
    return best[2] if best else None


def _fits(target: Any, head: Processor, architecture: str) -> bool:
    if str(target.family) != architecture:
        return False
    if architecture == "riscv64":
        uarch = {"sifive,u74-mc": "u74mc", "spacemit,x60": "x60"}.get(head.get("uarch", ""))
        if uarch is None and head.get("model name") == "Spacemit(R) X60":
            uarch = "x60"
        return bool(target.name == uarch or target.vendor == "generic")
    if architecture == "ppc64":
        generation = re.search(r"POWER(\d{1,3})", head.get("cpu", ""))
        return bool(target.generation <= (int(generation[1]) if generation else 0))
    if architecture == "aarch64" and target.vendor == "generic" and target.name != "aarch64":
        return False
    vendors = {_vendor(head, architecture), "generic"}
    return target.vendor in vendors and bool(target.features <= _flags(head))


def _depth(target: Any) -> tuple[int, int]:
    return len(target.ancestors), len(target.features)


def _head(processors: Sequence[Processor]) -> Processor:
    telling = ("vendor_id", "model name", "CPU implementer", "flags", "Features", "isa", "cpu")
    return next((processor for processor in processors if any(key in processor for key in telling)), {})


def _flags(processor: Processor) -> frozenset[str]:
    flags = frozenset((processor.get("flags") or processor.get("Features") or "").split())
    return flags | {"sse3"} if "ssse3" in flags else flags  # Linux calls SSE3 pni; archspec's table does not


def _architecture(processors: Sequence[Processor]) -> str | None:
    keys = {key for processor in processors for key in processor}
    head = _head(processors)
    if "CPU implementer" in keys:
        return "arm" if head.get("CPU architecture", "8") in {"5TE", "6TEJ", "6", "7"} else "aarch64"
    if head.get("isa", "").startswith("rv"):
        return "riscv64" if head["isa"].startswith("rv64") else "riscv32"
    if "POWER" in head.get("cpu", ""):
        return "ppc64"
    if "S390" in head.get("vendor_id", ""):
        return "s390x"
    if "flags" in keys and ("vendor_id" in keys or "fpu" in keys or "cpu family" in keys):
        return "x86_64"
    return None


def _vendor(head: Processor, architecture: str | None) -> str | None:
    code = parse_words(head.get("CPU implementer"))
    if architecture in {"aarch64", "arm"} and code is not None:
        from archspec.cpu.schema import TARGETS_JSON

        return parse_words(TARGETS_JSON["conversions"]["arm_vendors"].get(code, code))
    return parse_words(head.get("vendor_id"))


def _microcode(files: Files, head: Processor, online: Sequence[int]) -> str | None:
    found = parse_words(head.get("microcode"))
    if found is None and online:
        found = parse_words(files.text(f"sys/devices/system/cpu/cpu{online[0]}/microcode/version"))
    return found if re.fullmatch(r"0x[0-9a-f]{1,16}", found or "") else None


def _hypervisor_name(files: Files, head: Processor) -> str | None:
    kernel_word = parse_words(files.text("sys/hypervisor/type")) or ""
    said = [kernel_word, *(files.text(path) or "" for path in _DMI_FILES), head.get("model name", "")]
    return next((name for text in said for mark, name in _HYPERVISORS.items() if mark in text.lower()), None)
