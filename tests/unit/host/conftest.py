from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping


class MemoryFiles:
    """A machine's files in memory."""

    def __init__(self, contents: Mapping[str, str]) -> None:
        self.contents = dict(contents)

    def text(self, path: str) -> str | None:
        return self.contents.get(path)

    def names(self, path: str) -> tuple[str, ...]:
        inside = (name[len(path) + 1 :] for name in self.contents if name.startswith(path + "/"))
        return tuple(sorted({name.partition("/")[0] for name in inside}))

    def place(self, path: str) -> str | None:
        return posixpath.normpath(path) if self.names(path) or path in self.contents else None


@pytest.fixture
def memory_files() -> type[MemoryFiles]:
    return MemoryFiles


_FLAGS = (
    "fpu sse sse2 pni ssse3 sse4_1 sse4_2 cx16 popcnt lahf_lm avx avx2 fma f16c bmi1 bmi2 movbe abm avx512f avx512bw "
    "avx512cd avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16"
)


def _cpuinfo(cpu: int) -> str:
    return (
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        f"model name\t: Intel(R) Xeon(R) Platinum  8480+\nstepping\t: 8\nmicrocode\t: 0x2b000181\n"
        f"flags\t\t: {_FLAGS}\n\n"
    )


def _server() -> dict[str, str]:
    """Two packages of two cores of two threads; siblings at n/2; a memory-only node 4."""
    root = "sys/devices/system"
    files = {
        "proc/cpuinfo": "".join(_cpuinfo(cpu) for cpu in range(8)),
        "proc/meminfo": "MemTotal: 131072 kB\nSwapTotal: 1024 kB\nSwapFree: 512 kB\n",
        "proc/stat": "cpu 100 0 100 700 0 0 0 100 0 0\n",
        "proc/loadavg": "1.50 1.00 0.50 1/200 999\n",
        "proc/sys/kernel/randomize_va_space": "2\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
        "proc/self/cgroup": "0::/app\n",
        "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/app/cpu.max": "max 100000\n",
        "sys/fs/cgroup/app/cpuset.cpus.effective": "0-7\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        f"{root}/cpu/online": "0-7\n",
        f"{root}/cpu/possible": "0-7\n",
        f"{root}/cpu/intel_pstate/no_turbo": "0\n",
        f"{root}/node/node0/cpulist": "0-1,4-5\n",
        f"{root}/node/node0/meminfo": "Node 0 MemTotal: 65536 kB\n",
        f"{root}/node/node0/distance": "10 21 24\n",
        f"{root}/node/node1/cpulist": "2-3,6-7\n",
        f"{root}/node/node1/meminfo": "Node 1 MemTotal: 65536 kB\n",
        f"{root}/node/node1/distance": "21 10 24\n",
        f"{root}/node/node4/cpulist": "\n",
        f"{root}/node/node4/meminfo": "Node 4 MemTotal: 262144 kB\n",
        f"{root}/node/node4/distance": "24 24 10\n",
    }
    for cpu in range(8):
        folder, core = f"{root}/cpu/cpu{cpu}", cpu % 4
        files |= {
            f"{folder}/topology/physical_package_id": str(core // 2),
            f"{folder}/topology/die_id": "0",
            f"{folder}/topology/thread_siblings_list": f"{core},{core + 4}\n",
            f"{folder}/topology/core_siblings_list": "0-7\n",
            f"{folder}/cpufreq/scaling_driver": "intel_pstate\n",
            f"{folder}/cpufreq/scaling_governor": "performance\n",
            f"{folder}/cpufreq/cpuinfo_max_freq": "3800000\n",
            f"{folder}/cpufreq/scaling_cur_freq": "2000000\n",
            f"{folder}/cache/index0/level": "1",
            f"{folder}/cache/index0/type": "Data",
            f"{folder}/cache/index0/size": "48K",
            f"{folder}/cache/index0/shared_cpu_list": f"{core},{core + 4}\n",
        }
    return files


@pytest.fixture
def server() -> MemoryFiles:
    return MemoryFiles(_server())
