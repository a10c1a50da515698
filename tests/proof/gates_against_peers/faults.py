"""Natural faults, reported regressions and false friends, as variants.

The numbers C1 to C18, N1 and N2 are those of the survey that collected them; each names the public issue it comes from.
"""

from __future__ import annotations

from tests.proof.gates_against_peers.variants import Expected, Kind, Replace, Variant

_BF16 = "a CPU with bf16 instructions (avx512_bf16, avx_ne_convert or AMX): elsewhere both arms take the slow path"
_NO_ONEDNN = "with torch.backends.mkldnn.flags(enabled=False):"

FAULTS = (
    Variant(
        name="fault-foreach",
        kind=Kind.FAULT,
        doc="foreach=False asked for instead of fused=True in the conv step's Adam",
        cases=("conv_step",),
        controls=("linear", "lstm"),
        edits=(Replace(old="lr=1e-3, fused=True", new="lr=1e-3, foreach=False"),),
    ),
    Variant(
        name="fault-contiguous",
        kind=Kind.FAULT,
        doc=".contiguous() in the middle of a channels_last model",
        cases=("conv_step",),
        controls=("linear", "lstm"),
        edits=(
            Replace(old="functional.relu(self.second(x)), 2)", new="functional.relu(self.second(x)).contiguous(), 2)"),
        ),
    ),
    Variant(
        name="fault-float64",
        kind=Kind.FAULT,
        doc="a gain of one element in float64 promotes what it is multiplied with",
        cases=("layer_norm",),
        controls=("lstm", "attention"),
        edits=(Replace(old="torch.ones(1)", new="torch.ones(1, dtype=torch.float64)"),),
    ),
    Variant(
        name="fault-channels-last",
        kind=Kind.FAULT,
        doc="neither model nor images are converted to channels_last",
        cases=("conv_step",),
        controls=("linear", "lstm"),
        edits=(
            Replace(old="    model = model.to(memory_format=torch.channels_last)\n", new=""),
            Replace(
                old="torch.randn(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)",
                new="torch.randn(8, 3, 32, 32)",
            ),
        ),
    ),
    Variant(
        name="fault-denormals",
        kind=Kind.FAULT,
        doc="weights of 1e-41 instead of 1e-30: denormal, same shapes, same result; also C7",
        cases=("faded_conv",),
        controls=("linear", "lstm"),
        edits=(Replace(old="torch.rand_like(module.weight) * 1e-30", new="torch.rand_like(module.weight) * 1e-41"),),
        hardware="a CPU that slows down on denormals: Intel's in every product, AMD's Zen in roots and quotients",
        source="pytorch#67797, #23862, #19651, #21734",
    ),
    Variant(
        name="fault-threads",
        kind=Kind.FAULT,
        doc="OMP_NUM_THREADS doubled: two threads on one CPU",
        cases=("linear", "layer_norm", "attention"),
        environment=(("OMP_NUM_THREADS", "2"), ("MKL_NUM_THREADS", "2")),
        expected=Expected.REFUSAL,
    ),
    Variant(
        name="fault-allocator",
        kind=Kind.FAULT,
        doc="glibc's default allocator settings instead of the pinned ones",
        cases=("layer_norm", "linear", "attention", "embedding_bag"),
        environment=tuple(
            (name, "")
            for name in ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
        ),
    ),
)

REPORTED = (
    Variant(
        name="c01-matmul-reference",
        kind=Kind.REPORTED,
        doc="a bf16 matrix product without oneDNN",
        cases=("matmul_bf16",),
        controls=("linear", "lstm"),
        edits=(
            Replace(old="        return torch.mm(left", new=f"        {_NO_ONEDNN}\n            return torch.mm(left"),
        ),
        needs=("avx512_bf16",),
        hardware=_BF16,
        source="pytorch#193951",
    ),
    Variant(
        name="c02-conv-reference",
        kind=Kind.REPORTED,
        doc="a grouped bf16 convolution without oneDNN",
        cases=("conv_bf16",),
        controls=("linear", "conv_step"),
        edits=(
            Replace(
                old="        with torch.no_grad():\n            return module(images)\n",
                new="        with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):\n"
                "            return module(images)\n",
            ),
        ),
        needs=("avx512_bf16",),
        hardware=_BF16,
        source="pytorch#183815",
    ),
    Variant(
        name="c03-plain-weight",
        kind=Kind.REPORTED,
        doc="a bf16 convolution on channels_last images copied to the plain layout before every call",
        cases=("conv_bf16",),
        controls=("linear", "conv_step"),
        edits=(
            Replace(old="            return module(images)\n", new="            return module(images.contiguous())\n"),
        ),
        source="pytorch#150514",
    ),
    Variant(
        name="c04-bmm-path",
        kind=Kind.REPORTED,
        doc="batched bf16 matrix products without oneDNN, and nothing else",
        cases=("bmm_bf16",),
        controls=("matmul_bf16", "linear"),
        edits=(
            Replace(
                old="        return torch.bmm(left", new=f"        {_NO_ONEDNN}\n            return torch.bmm(left"
            ),
        ),
        needs=("avx512_bf16",),
        hardware=_BF16,
        source="pytorch#162683, #161065",
    ),
    Variant(
        name="c10-oversubscribed-cat",
        kind=Kind.REPORTED,
        doc="torch.cat of small tensors with eight threads for each CPU",
        cases=("concatenate",),
        edits=(
            Replace(
                old="        return torch.cat(parts)\n",
                new="        torch.set_num_threads(8)\n        return torch.cat(parts)\n",
            ),
        ),
        source="pytorch#44025, #92142",
    ),
    Variant(
        name="c11-second-core",
        kind=Kind.REPORTED,
        doc="an upsampling runs on two threads: hardly faster, twice the CPU seconds",
        cases=("interpolate",),
        edits=(Replace(old="        torch.set_num_threads(1)\n", new="        torch.set_num_threads(2)\n"),),
        expected=Expected.CPU,
        cpus=2,
        source="pytorch#177906",
    ),
    Variant(
        name="c12-lost-affinity",
        kind=Kind.REPORTED,
        doc="OMP_PROC_BIND=true: importing torch binds the process to its first CPU",
        cases=("linear", "lstm"),
        environment=(("OMP_PROC_BIND", "true"),),
        expected=Expected.REFUSAL,
        cpus=2,
        source="pytorch#98836, #149422, #49971, #99625",
    ),
    Variant(
        name="c13-host-threads",
        kind=Kind.REPORTED,
        doc="eight threads, as many as a host has, where the container's CPU set allows one",
        cases=("lstm",),
        edits=(
            Replace(
                old="        loss = module(inputs)[0].square().mean()\n",
                new="        torch.set_num_threads(8)\n        loss = module(inputs)[0].square().mean()\n",
            ),
        ),
        source="pytorch#193859",
    ),
    Variant(
        name="c15-no-bf16",
        kind=Kind.REPORTED,
        doc="bf16 autocast where oneDNN may use AVX2 only",
        cases=("autocast_step", "matmul_bf16"),
        controls=("layer_norm", "embedding_bag"),
        environment=(("ONEDNN_MAX_CPU_ISA", "AVX2"),),
        needs=("avx512_bf16",),
        hardware=_BF16,
        source="pytorch#146508, #118499, #111456",
    ),
    Variant(
        name="c16-plain-input",
        kind=Kind.REPORTED,
        doc="a channels_last model that copies to the plain layout after every layer",
        cases=("conv_step",),
        controls=("linear", "lstm"),
        edits=(
            Replace(old="self.norm(self.first(x))", new="self.norm(self.first(x)).contiguous()"),
            Replace(old="functional.relu(self.second(x)), 2)", new="functional.relu(self.second(x)), 2).contiguous()"),
            Replace(old="functional.relu(self.third(x))", new="functional.relu(self.third(x)).contiguous()"),
        ),
        source="pytorch#172205, #34977, #44943",
    ),
    Variant(
        name="c17-page-faults",
        kind=Kind.REPORTED,
        doc="an allocator that returns every block of 64 KiB and more to the system",
        cases=("layer_norm", "linear", "embedding_bag"),
        environment=(("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=65536:glibc.malloc.trim_threshold=0"),),
        source="pytorch#5412, #73883",
    ),
    Variant(
        name="c18-unfused",
        kind=Kind.REPORTED,
        doc="Adam with foreach=True instead of fused=True",
        cases=("adam",),
        controls=("linear", "lstm"),
        edits=(Replace(old="lr=1e-4, fused=True", new="lr=1e-4, foreach=True"),),
        source="pytorch#92306, #95862",
    ),
)

SILENT = (
    Variant(
        name="n1-other-machine",
        kind=Kind.SILENT,
        doc="a stored baseline of another machine on which everything took a hundredth of the time",
        expected=Expected.INCOMPARABLE,
        stored=True,
        source="pytorch#189281, #189282",
    ),
    Variant(
        name="n2-shared-runner",
        kind=Kind.SILENT,
        doc="a comment more, while a neighbour shares the measured CPU",
        expected=Expected.NOTHING,
        edits=(Replace(old="import time\n", new="# Nothing but a comment.\nimport time\n"),),
        neighbour=True,
        source="pytorch/benchmark#2219, #2455",
    ),
)
