"""What a machine is: its fingerprint, whether two may be compared, and where to run on it.

None always means unknown: the file was missing, empty or nonsense, and nothing was guessed.
Empty tuples mean that there is none of the kind, or that it is unknown where a field says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from perfguard.records.facts import Fact


class SoftwareFacts(Struct, frozen=True, kw_only=True):
    """What the interpreter under test runs on."""

    python_version: str | None = None  # `3.11.7`
    python_implementation: str | None = None  # `CPython`, ...
    glibc_version: str | None = None  # C library, `glibc 2.36`
    torch_version: str | None = None  # None when torch cannot be imported
    torch_git_version: str | None = None  # Commit that torch was built from
    torch_debug: bool | None = None
    torch_cxx11_abi: bool | None = None
    torch_build: tuple[str, ...] | None = None  # Lines of torch's build summary, long flags left out
    aten_isa: str | None = None  # Effective vector level of torch's own kernels
    onednn_version: str | None = None  # oneDNN inside torch
    onednn_isa: str | None = None  # oneDNN's own sentence about the instruction set it uses
    mkl_version: str | None = None  # MKL inside torch
    mkl_isa: str | None = None  # MKL's own words about the instruction set it uses
    intra_op_threads: int | None = None  # `torch.get_num_threads()` with the environment as it was
    inter_op_threads: int | None = None  # `torch.get_num_interop_threads()`
    parallel_backend: str | None = None  # `OpenMP`, ...
    openmp_runtimes: tuple[str, ...] | None = None  # File names of the OpenMP libraries that are really loaded
    malloc_libraries: tuple[str, ...] | None = None  # File names of allocators loaded beside the C library's
    ipex_version: str | None = None  # Installed intel_extension_for_pytorch; None when there is none
    numpy_version: str | None = None
    flushes_denormals: bool | None = None  # Whether this interpreter rounds denormals to zero after importing torch
    float32_matmul_precision: str | None = None  # `highest`, `high` or `medium`
    onednn_enabled: bool | None = None
    deterministic: bool | None = None  # Whether deterministic algorithms are forced
    environment: Mapping[str, str] | None = None  # Set variables that change CPU results; paths cut to file names
    problem: Fact | None = None  # Why torch could not be asked, one line


class FrequencyDomain(Struct, frozen=True, kw_only=True):
    """CPUs that share a frequency policy's settings."""

    cpus: tuple[int, ...]  # Online CPUs, ascending
    driver: str | None  # `intel_pstate`, `amd-pstate-epp`, `acpi-cpufreq`, ...
    governor: str | None  # `performance`, `powersave`, ...
    energy_preference: str | None  # Energy-performance preference, where the driver has one
    min_hz: int | None  # Smallest frequency of the hardware
    max_hz: int | None  # Largest frequency of the hardware
    base_hz: int | None  # Guaranteed frequency without turbo
    limit_min_hz: int | None  # Lower limit that is set
    limit_max_hz: int | None  # Upper limit that is set


class State(Struct, frozen=True, kw_only=True):
    """Settings and conditions that can change without another machine."""

    frequency: tuple[FrequencyDomain, ...] = ()  # One entry a set of settings; empty where the kernel controls none
    driver: str | None = None  # The frequency driver, when it is the same everywhere
    governor: str | None = None  # The governor, when it is the same everywhere
    turbo: bool | None = None  # Whether turbo (boost) is allowed
    min_perf_percent: int | None = None
    max_perf_percent: int | None = None
    smt_control: str | None = None  # `on`, `off`, `forceoff`, `notsupported`, ...
    thp: str | None = None  # Transparent huge pages: `always`, `madvise` or `never`
    thp_defrag: str | None = None  # When huge pages are assembled
    ksm: bool | None = None  # Whether same-page merging runs
    numa_balancing: bool | None = None  # Whether the kernel migrates pages between nodes
    aslr: int | None = None  # `kernel.randomize_va_space`: 0, 1 or 2
    kernel: str | None = None
    clocksource: str | None = None  # `tsc`, `kvm-clock`, `hpet`, ...
    mitigations: Mapping[str, str] | None = None  # Vulnerability to mitigation, as the kernel puts it
    memory_bytes: int | None = None  # Usable memory of the machine
    swap_bytes: int | None = None  # Size of swap; 0 without any
    swap_used_bytes: int | None = None
    steal_ratio: float | None = None  # Stolen over all CPU time since boot
    load_1min: float | None = None  # Load average over one minute


SCHEMA_VERSION = 1  # Raised when a field changes its meaning; fingerprints of another version are never equal


class CoreClass(str, Enum):
    """Kinds of cores of a hybrid CPU, fastest first."""

    PERFORMANCE = "P"
    EFFICIENCY = "E"
    LOW_POWER = "LP-E"


class MemoryKind(str, Enum):
    """What a NUMA node's memory is made of, where the machine says so."""

    DRAM = "dram"
    HBM = "hbm"
    PMEM = "pmem"
    CXL = "cxl"
    UNKNOWN = "unknown"


class AmxPermission(str, Enum):
    """Answer of `arch_prctl(ARCH_REQ_XCOMP_PERM)` for AMX tiles."""

    GRANTED = "granted"
    DENIED = "denied"
    NOT_ASKED = "not-asked"
    NOT_APPLICABLE = "not-applicable"


class IsaSource(str, Enum):
    """How the instruction set that a library uses is known."""

    MEASURED = "measured"
    FROM_FLAGS = "from-flags"


class QuotaState(str, Enum):
    """Whether a CPU quota applies to this process."""

    LIMITED = "limited"
    UNLIMITED = "unlimited"
    UNKNOWN = "unknown"


class Cpu(Struct, frozen=True, kw_only=True):
    """The processor as it names itself."""

    architecture: str | None = None  # `x86_64`, `aarch64`, ...
    vendor: str | None = None  # `GenuineIntel`, `AuthenticAMD`, `ARM`, ...
    brand: str | None = None  # The model name, spaces collapsed
    family: int | None = None
    model: int | None = None
    stepping: int | None = None
    microcode: str | None = None  # Revision, hexadecimal
    microarchitecture: str | None = None
    """Name in archspec's table, for instance `sapphirerapids`; a generic level where no more is known. All that the
    table asks of that name is there, so it is a lower bound."""
    resembles: str | None = None  # A newer name that few flags speak against, which hypervisors like to hide, or None
    hidden_flags: tuple[str, ...] | None = None  # Flags of `resembles` that are missing; None where that is None
    hypervisor: bool | None = None  # Whether the CPU says that it is virtual
    hypervisor_name: str | None = None  # `kvm`, `vmware`, `hyperv`, ...; None on bare metal and when it does not say


class EffectiveIsa(Struct, frozen=True, kw_only=True):
    """The instruction set level that a library picks on this CPU."""

    level: str  # In the library's own words: `AVX512`, `avx512_core_amx`, ...
    source: IsaSource  # Measured in the interpreter under test, or derived from the flags


class Isa(Struct, frozen=True, kw_only=True):
    """Instruction sets that can be used: what the kernel shows, not what the model could do."""

    features: tuple[str, ...] | None = None  # Kernel names of features that matter to training, sorted; None: no flags
    avx2: bool | None = None  # AVX2 and FMA
    avx512: bool | None = None  # AVX-512 F, BW, DQ and VL together, which is what libraries ask for
    vnni: bool | None = None  # 8-bit dot products, AVX-512 or AVX form; on Arm, asimddp
    bf16: bool | None = None
    fp16: bool | None = None
    amx_tile: bool | None = None
    amx_int8: bool | None = None
    amx_bf16: bool | None = None
    amx_fp16: bool | None = None
    amx_permission: AmxPermission = AmxPermission.NOT_ASKED  # Asked on the live machine only
    aten: EffectiveIsa | None = None  # Vector level of torch's own kernels
    onednn: EffectiveIsa | None = None
    mkl: EffectiveIsa | None = None  # Level of MKL; derived for Intel CPUs only, elsewhere it must be measured


class LogicalCpu(Struct, frozen=True, kw_only=True):
    """One online hardware thread and its place."""

    id: int
    core: int | None  # Lowest online CPU of the same physical core
    package: int | None
    die: int | None  # Die id within the package
    core_class: CoreClass  # Performance where the CPU is not hybrid
    max_frequency_hz: int | None = None  # Largest frequency of this CPU


class CoreClassGroup(Struct, frozen=True, kw_only=True):
    """All cores of one class."""

    core_class: CoreClass
    cores: int | None
    cpus: tuple[int, ...]  # Their online CPUs, ascending


class NumaNode(Struct, frozen=True, kw_only=True):
    """One NUMA node."""

    id: int  # The kernel's number; numbers need not be contiguous
    cpus: tuple[int, ...] | None  # Its online CPUs, ascending; empty for memory-only nodes
    memory_bytes: int | None  # Size of its memory; 0 for nodes with CPUs only
    distances: tuple[int, ...] | None  # Distance to each node, in the order of the nodes; 10 is local
    memory_kind: MemoryKind = MemoryKind.UNKNOWN


class Topology(Struct, frozen=True, kw_only=True):
    """Packages, cores, threads and nodes. Only online CPUs count."""

    packages: int | None = None  # Physical packages (sockets); some virtual machines show one a CPU
    dies: int | None = None  # Dies over all packages
    cores: int | None = None  # Physical cores with an online thread
    threads_online: int | None = None  # Online CPUs
    smt: bool | None = None  # Whether any core has more than one online thread
    hybrid: bool | None = None  # Whether there are cores of more than one kind
    core_classes: tuple[CoreClassGroup, ...] = ()  # One group for each kind of core, fastest first
    cpus: tuple[LogicalCpu, ...] = ()  # Online CPUs, ascending
    online: tuple[int, ...] | None = None  # Online CPUs
    offline: tuple[int, ...] | None = None  # CPUs that could be there but are off or absent
    possible: tuple[int, ...] | None = None  # CPUs the kernel has room for
    isolated: tuple[int, ...] | None = None  # CPUs kept from the scheduler (isolcpus)
    nohz_full: tuple[int, ...] | None = None  # CPUs without a periodic tick
    numa_nodes: tuple[NumaNode, ...] = ()  # Ascending by id; empty when the kernel shows none


class Cache(Struct, frozen=True, kw_only=True):
    """Caches of one level, kind, size and sharing."""

    level: int  # 1 is nearest to the core
    kind: str  # `data`, `instruction`, `unified`, or `unknown`
    size_bytes: int | None  # Size of one such cache
    instances: int | None  # How many there are; None when the sharing is unknown
    shared_by: int | None  # Online CPUs that share one


class Limits(Struct, frozen=True, kw_only=True):
    """What the control group allows this process."""

    cgroup_version: int | None = None  # 1 or 2, of the hierarchy that rules the CPUs; None when not in any or unknown
    allowed_cpus: tuple[int, ...] | None = None
    allowed_nodes: tuple[int, ...] | None = None
    quota: QuotaState = QuotaState.UNKNOWN  # Whether CPU time is limited
    quota_cpus: float | None = None  # The limit in CPUs, when limited
    throttled_periods: int | None = None  # Periods in which the group was throttled so far
    memory_bytes: int | None = None  # Memory limit, when there is one


class Fingerprint(Struct, frozen=True, kw_only=True):
    """Everything that timings depend on. Holds no serial numbers, addresses or host names."""

    schema_version: int = SCHEMA_VERSION
    machine_id: str  # Readable name and hash of what makes timings comparable
    stack_id: str | None  # Readable name and hash of the software; None when no interpreter was asked
    cpu: Cpu
    isa: Isa
    topology: Topology
    caches: tuple[Cache, ...]  # Nearest first; empty when unknown
    limits: Limits
    state: State
    software: SoftwareFacts | None = None  # The interpreter under test; None when none was asked
    notes: tuple[Fact, ...] = ()  # What could not be read or does not apply


class CompatibilityLevel(str, Enum):
    """Whether timings of two fingerprints may be compared."""

    EQUAL = "equal"
    COMPARABLE = "comparable"
    INCOMPARABLE = "incomparable"


class Compatibility(Struct, frozen=True, kw_only=True):
    """The answer for two fingerprints."""

    level: CompatibilityLevel  # The worst of all differences
    reasons: tuple[Fact, ...]  # One a difference, the worst first; empty when equal


class CheckStatus(str, Enum):
    """What a check of the host says."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"


class CheckResult(Struct, frozen=True, kw_only=True):
    """One source of noise, checked."""

    id: str  # Stable name: `governor`, `turbo`, ...
    status: CheckStatus
    observed: Fact  # What was seen
    why: Fact
    fix: Fact | None = None  # The command that fixes it; None when there is nothing to do


class CpuSelection(Struct, frozen=True, kw_only=True):
    """Where a run is pinned. There are as many threads as CPUs, always."""

    cpus: tuple[int, ...]  # The mask, ascending
    threads: int  # Threads of the run, equal to the number of CPUs
    housekeeping: tuple[int, ...]  # CPUs of the core that is left to the system; empty when none was
    numa_node: int | None  # The node all CPUs are on; None when several or unknown
    bind_memory_node: int | None  # The node to bind memory to; None to leave memory alone
    core_classes: tuple[CoreClass, ...] = field(default=())  # Classes of the chosen cores, fastest first
    reason: Fact
