"""Instruction sets: from the kernel's flags to what torch's libraries make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from perfguard.records.machine.fingerprint import AmxPermission, Cpu, EffectiveIsa, Isa, IsaSource, SoftwareFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.host.parsers.cpu import Processor

X86_FEATURES = frozenset(
    {
        "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "bmi2",
        "avx_vnni", "avx_vnni_int8", "avx_vnni_int16", "avx_ne_convert", "avx_ifma",
        "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi",
        "avx512_vbmi2", "avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq", "avx512_vp2intersect",
        "avx512_bf16", "avx512_fp16", "avx512er", "avx512pf", "avx512_4vnniw", "avx512_4fmaps",
        "avx10", "avx10_1", "avx10_2", "gfni", "vaes", "vpclmulqdq",
        "amx_tile", "amx_int8", "amx_bf16", "amx_fp16", "amx_complex",
    }
)  # fmt: skip
"""Features that x86 training kernels choose by, in the kernel's names."""

ARM_FEATURES = frozenset(
    {
        "fp", "asimd", "fphp", "asimdhp", "asimddp", "asimdfhm", "asimdrdm", "fcma", "bf16", "i8mm",
        "sve", "sve2", "svebf16", "svei8mm", "sme", "sme2", "smef16f32", "smeb16f32", "atomics",
    }
)  # fmt: skip
"""The same for Arm."""

_AVX512_BASE = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
_AMX = frozenset({"amx_tile", "amx_int8", "amx_bf16"})

_ONEDNN_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("avx512_core_amx_fp16", _AVX512_BASE | _AMX | {"avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_fp16"}),
    ("avx512_core_amx", _AVX512_BASE | _AMX | {"avx512_vnni", "avx512_bf16", "avx512_fp16"}),
    ("avx512_core_fp16", _AVX512_BASE | {"avx512_vnni", "avx512_bf16", "avx512_fp16"}),
    ("avx512_core_bf16", _AVX512_BASE | {"avx512_vnni", "avx512_bf16"}),
    ("avx512_core_vnni", _AVX512_BASE | {"avx512_vnni"}),
    ("avx512_core", _AVX512_BASE),
    ("avx2_vnni_2", frozenset({"avx2", "fma", "avx_vnni", "avx_vnni_int8", "avx_ne_convert"})),
    ("avx2_vnni", frozenset({"avx2", "fma", "avx_vnni"})),
    ("avx2", frozenset({"avx2", "fma"})),
    ("avx", frozenset({"avx"})),
    ("sse41", frozenset({"sse4_1"})),
)
"""oneDNN's levels, best first, and what each needs. Source: oneDNN src/cpu/x64/cpu_isa_traits.hpp."""


def read_isa(
    cpu: Cpu,
    processors: Sequence[Processor],
    *,
    software: SoftwareFacts | None,
    permission: AmxPermission = AmxPermission.NOT_ASKED,
) -> Isa:
    """The instruction sets that every processor shows. A denied AMX permission takes AMX away."""
    flags = _common_flags(processors)
    software = software or SoftwareFacts()
    if flags is None:
        return measured_isa(Isa(), software)
    is_denied = permission is AmxPermission.DENIED
    usable = flags - {flag for flag in flags if flag.startswith("amx_")} if is_denied else flags
    has = usable.__contains__
    if cpu.architecture in {"aarch64", "arm"}:
        return Isa(
            features=tuple(sorted(usable & ARM_FEATURES)),
            **dict.fromkeys(("avx2", "avx512", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"), False),
            vnni=has("asimddp"),
            bf16=has("bf16"),
            fp16=has("asimdhp"),
            amx_permission=AmxPermission.NOT_APPLICABLE,
            aten=_level(software.aten_isa),
            onednn=_level(software.onednn_isa),
            mkl=None,
        )
    if cpu.architecture != "x86_64":
        return measured_isa(Isa(), software)
    return Isa(
        features=tuple(sorted(usable & X86_FEATURES)),
        avx2=has("avx2") and has("fma"),
        avx512=usable >= _AVX512_BASE,
        vnni=has("avx512_vnni") or has("avx_vnni"),
        bf16=has("avx512_bf16") or has("avx_ne_convert"),
        fp16=has("avx512_fp16"),
        **{name: has(name) for name in ("amx_tile", "amx_int8", "amx_bf16", "amx_fp16")},
        amx_permission=permission if "amx_tile" in flags else AmxPermission.NOT_APPLICABLE,
        aten=_level(software.aten_isa, aten_level(usable)),
        onednn=_level(software.onednn_isa, onednn_level(usable)),
        mkl=_level(software.mkl_isa, mkl_level(usable, cpu.vendor)),
    )


def measured_isa(found: Isa, software: SoftwareFacts) -> Isa:
    """The same instruction sets, with what the libraries were seen to use instead of what follows from the flags."""
    return replace(
        found,
        aten=_level(software.aten_isa) or found.aten,
        onednn=_level(software.onednn_isa) or found.onednn,
        mkl=_level(software.mkl_isa) or found.mkl,
    )


def aten_level(flags: frozenset[str]) -> str:
    """What torch's dispatcher picks by itself. Source: aten/src/ATen/native/DispatchStub.cpp."""
    if flags >= _AVX512_BASE | {"fma"}:
        return "AVX512"
    return "AVX2" if flags >= {"avx2", "fma"} else "DEFAULT"


def onednn_level(flags: frozenset[str]) -> str:
    """What oneDNN picks by itself."""
    return next((level for level, needed in _ONEDNN_LEVELS if flags >= needed), "ref")


def mkl_level(flags: frozenset[str], vendor: str | None) -> str | None:
    """What MKL picks by itself on an Intel CPU; it treats other vendors by rules it does not publish."""
    if vendor != "GenuineIntel":
        return None
    if flags >= _AVX512_BASE:
        return "AVX512"
    return next((level.upper() for level in ("avx2", "avx", "sse4_2") if level in flags), "SSE2")


def _common_flags(processors: Sequence[Processor]) -> frozenset[str] | None:
    texts = (processor.get("flags") or processor.get("Features") for processor in processors)
    sets = [frozenset(text.split()) for text in dict.fromkeys(texts) if text]
    return frozenset.intersection(*sets) if sets else None


def _level(measured: str | None, derived: str | None = None) -> EffectiveIsa | None:
    if measured:
        return EffectiveIsa(level=measured, source=IsaSource.MEASURED)
    return EffectiveIsa(level=derived, source=IsaSource.FROM_FLAGS) if derived else None
