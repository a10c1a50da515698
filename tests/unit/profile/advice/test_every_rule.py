"""Every rule has a step that it finds something in, and one beside it that it must leave alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.registry import RULES, advise
from perfguard.profile.advice.subject import Subject
from perfguard.profile.op_counts.census import CACHE_MISS
from perfguard.records.machine.fingerprint import Limits, QuotaState
from perfguard.records.steps.findings import Severity
from perfguard.records.steps.program import DenormalCount
from tests.finding_evidence import (
    BACKWARD,
    LOAD,
    LOSS,
    OPTIMIZER,
    census,
    conv,
    evidence,
    layer,
    machine,
    op,
    primitive,
    program,
    python,
    reorder,
    row,
    software,
)

IMAGE = "[2,64,56,56]"
ADAM = {"module": "Adam", "phase": OPTIMIZER}
BF16_CONV = {"memory": "src:bf16::blocked:acdb::f0 wei:bf16:a:blocked:any::f0 dst:bf16::blocked:acdb::f0"}
FROZEN = (layer("Net.stem", learns=False), layer("Net.body"))


def linear(ms, dtypes):
    return op("addmm", ms, shapes="[768] [128,768] [768,768]", dtypes=dtypes)


def loop():
    return [op(name, 1, calls=62, shapes="[64,64]", **ADAM) for name in ("mul_", "addcmul_", "addcdiv_")]


def frozen_norm(values):
    return [op(name, 3, module="Net.bn1", shapes=f"{IMAGE} {values}") for name in ("mul", "add")]


def tiny(ms):
    return [op(f"op{number}", ms / 40, calls=10, shapes="[8]") for number in range(40)]


def denormal(count):
    return program(denormals=(DenormalCount(group="parameters", values=1000, denormals=count, worst="Net.w"),))


FIRES = {
    "threads": evidence(threads=2, cpus=1),
    "reference-kernel": evidence(conv(5), primitive("convolution", "ref:any", 5)),
    "emulated-dtype": evidence(
        linear(20, "bf16"), fingerprint=machine(bf16=False, amx_bf16=False), isa_class="avx512_core"
    ),
    "capped-isa": evidence(software=software(ONEDNN_MAX_CPU_ISA="AVX2")),
    "denormals": evidence(program=denormal(100)),
    "layout-lost": evidence(
        conv(20), conv(5, reads="contiguous", module="Net.late"), op("copy_", 3, module="Net.late", shapes=IMAGE)
    ),
    "mixed-layouts": evidence(
        op("threshold_backward", 5, phase=BACKWARD, shapes=f"{IMAGE} {IMAGE}", layouts="contiguous channels_last")
    ),
    "channels-last-untried": evidence(conv(30, reads="contiguous", weights="contiguous")),
    "reorders": evidence(reorder(8, calls=12)),
    "copies": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", layouts="contiguous channels_last")),
    "casts": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", dtypes="bf16 f32")),
    "double-precision": evidence(op("mul", 5, shapes=f"{IMAGE} {IMAGE}", dtypes="f64")),
    "unfused-optimizer": evidence(*loop()),
    "frozen-backward": evidence(
        op("convolution_backward", 9, module="Net.stem", phase=BACKWARD, shapes=IMAGE), program=program(*FROZEN)
    ),
    "frozen-batch-norm": evidence(*frozen_norm("[1,64,1,1]")),
    "fragmented-trace": evidence(*tiny(3), python(40)),
    "allocator-faults": evidence(faults=10_000),
    "primitive-cache-misses": evidence(census=census(row("primitive", CACHE_MISS, 2, detail="convolution FWD_D"))),
    "input-pipeline": evidence(op("stack", 20, phase=LOAD, module="")),
    "graph-breaks": evidence(census=census(row("compile", "graph_break", detail="call to print"))),
    "low-precision-loss": evidence(op("sum", 1, phase=LOSS, shapes="[4096]", dtypes="bf16")),
}

QUIET = {
    "threads": evidence(
        threads=2, cpus=2, fingerprint=machine(limits=Limits(quota=QuotaState.LIMITED, quota_cpus=2.0))
    ),
    "reference-kernel": evidence(
        conv(5),
        primitive("convolution", "brg_conv_fwd:avx512_core", 5),
        primitive("matmul", "gemm:jit:f32", 5),
        primitive("rnn", "ref:any", 5),
    ),
    "emulated-dtype": evidence(
        linear(20, "bf16"),
        primitive("matmul", "brg_matmul:avx512_core_amx", 20, **BF16_CONV),
        fingerprint=machine(bf16=True, amx_bf16=False),
    ),
    "capped-isa": evidence(software=software(ONEDNN_MAX_CPU_ISA="ALL", OMP_NUM_THREADS="2")),
    "denormals": evidence(program=denormal(0)),
    "layout-lost": evidence(conv(20), conv(5, reads="contiguous", size=1, module="Net.squeeze")),
    "mixed-layouts": evidence(
        op("mul", 5, shapes=f"{IMAGE} {IMAGE}", layouts="channels_last"),
        op("native_batch_norm", 5, shapes=f"{IMAGE} [64]", layouts="channels_last contiguous"),
    ),
    "channels-last-untried": evidence(conv(30)),
    "reorders": evidence(reorder(4, calls=120)),
    "copies": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", dtypes="bf16 f32")),
    "casts": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", layouts="contiguous channels_last")),
    "double-precision": evidence(op("add_", 5, shapes="[] []", dtypes="f32 f64", **ADAM)),
    "unfused-optimizer": evidence(op("_fused_adam_", 3, shapes="{62:11689512}", **ADAM)),
    "frozen-backward": evidence(op("convolution_backward", 9, phase=BACKWARD, shapes=IMAGE), program=program(*FROZEN)),
    "frozen-batch-norm": evidence(
        *frozen_norm("[2,64,1,1]"), op("native_batch_norm", 3, module="Net.bn2", shapes=IMAGE)
    ),
    "fragmented-trace": evidence(*tiny(3), python(10)),
    "allocator-faults": evidence(faults=20),
    "primitive-cache-misses": evidence(census=census(row("primitive", "convolution FWD_D", 60))),
    "input-pipeline": evidence(op("stack", 2, phase=LOAD, module="")),
    "graph-breaks": evidence(census=census(row("compile", "unique_graphs"), row("compile", "frames"))),
    "low-precision-loss": evidence(
        op("sum", 1, phase=LOSS, shapes="[4096]"), op("sum", 1, shapes="[4096]", dtypes="bf16")
    ),
}


def found(rule_id, given):
    return [finding for finding in advise(given) if finding.id == rule_id]


def test_every_rule_is_tested_here():
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    assert set(ids) == set(FIRES) == set(QUIET)


@pytest.mark.parametrize("rule_id", sorted(FIRES))
def test_a_rule_finds_what_it_is_for_and_says_how_to_find_out(rule_id):
    findings = found(rule_id, FIRES[rule_id])
    assert findings
    for finding in findings:
        assert finding.title
        assert finding.seen
        assert all(finding.seen)
        assert finding.severity in Severity
        assert finding.share is None or 0 < finding.share <= 1
        assert finding.gain.text.startswith("unknown") or finding.gain.source
        assert finding.trial.change
        assert finding.trial.command.startswith("perfguard compare --baseline ")


@pytest.mark.parametrize("rule_id", sorted(QUIET))
def test_a_rule_leaves_alone_what_only_looks_like_it(rule_id):
    assert found(rule_id, QUIET[rule_id]) == []


@pytest.mark.parametrize("rule_id", sorted(FIRES))
def test_where_an_op_is_concerned_its_place_is_named(rule_id):
    for finding in found(rule_id, FIRES[rule_id]):
        assert bool(finding.where) >= bool(finding.ops)
        assert not finding.where or finding.where.startswith("in ")


FIELDS = tuple(Evidence.__dataclass_fields__)


@settings(deadline=None)
@given(st.data())
def test_missing_evidence_is_never_an_error(data):
    """Fields of all steps above, mixed, and any of them left out."""
    sources = [*FIRES.values(), *QUIET.values()]
    names = data.draw(st.sets(st.sampled_from(FIELDS)))
    fields = {name: getattr(data.draw(st.sampled_from(sources)), name) for name in sorted(names)}
    for finding in advise(Evidence(**fields)):
        assert finding.seen
        if "subject" not in fields:
            assert finding.trial.command == ""


def test_nothing_known_is_nothing_found():
    assert advise(Evidence(subject=Subject())) == ()
