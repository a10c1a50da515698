"""Every rule has a step that it finds something in, and one beside it that it must leave alone.

`PERFGUARD_UPDATE_GOLDEN=1` writes anew how all advice reads.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.advice import gains
from perfguard.profile.advice.advise import RULES, advise
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.trials import Program
from perfguard.profile.op_counts.steady import CACHE_MISS
from perfguard.records.machine.fingerprint import Limits, QuotaState
from perfguard.records.steps.findings import PREFIX
from perfguard.records.steps.program import DenormalCount
from perfguard.report.messages.message import sections
from perfguard.report.terminal.findings import finding_heading, finding_rows
from tests.finding_evidence import (
    BACKWARD,
    CASE,
    LOAD,
    LOSS,
    OPTIMIZER,
    comparison,
    conv,
    counts,
    delta,
    evidence,
    layer,
    machine,
    made_gain,
    op,
    primitive,
    program,
    python,
    reorder,
    row,
    rule_of,
    software,
)

GOLDEN = Path(__file__).parent / "golden" / "advice.txt"
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


SLOW = op("mkldnn_convolution", 10, shapes=f"{IMAGE} [64,64,3,3]", module="Net.slow")

FIRES = {
    "threads": evidence(threads=2, cpus=1),
    "reference_kernel": evidence(conv(5), primitive("convolution", "ref:any", 5)),
    "emulated_dtype": evidence(
        linear(20, "bf16"), fingerprint=machine(bf16=False, amx_bf16=False), isa_class="avx512_core"
    ),
    "capped_isa": evidence(software=software(ONEDNN_MAX_CPU_ISA="AVX2")),
    "denormals": evidence(program=denormal(100)),
    "layout_lost": evidence(
        conv(20), conv(5, reads="contiguous", module="Net.late"), op("copy_", 3, module="Net.late", shapes=IMAGE)
    ),
    "mixed_layouts": evidence(
        op("threshold_backward", 5, phase=BACKWARD, shapes=f"{IMAGE} {IMAGE}", layouts="contiguous channels_last")
    ),
    "channels_last_untried": evidence(conv(30, reads="contiguous", weights="contiguous")),
    "reorders": evidence(reorder(8, calls=12)),
    "copies": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", layouts="contiguous channels_last")),
    "casts": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", dtypes="bf16 f32")),
    "bf16_untried": evidence(linear(20, "f32"), fingerprint=machine(bf16=True)),
    "double_precision": evidence(op("mul", 5, shapes=f"{IMAGE} {IMAGE}", dtypes="f64")),
    "unfused_optimizer": evidence(*loop()),
    "frozen_backward": evidence(
        op("convolution_backward", 9, module="Net.stem", phase=BACKWARD, shapes=IMAGE), program=program(*FROZEN)
    ),
    "frozen_batch_norm": evidence(*frozen_norm("[1,64,1,1]")),
    "fragmented_trace": evidence(*tiny(3), python(40)),
    "allocator_faults": evidence(faults=10_000),
    "primitive_cache_misses": evidence(op_counts=counts(row("primitive", CACHE_MISS, 2, detail="convolution FWD_D"))),
    "input_pipeline": evidence(op("stack", 20, phase=LOAD, module="")),
    "graph_breaks": evidence(op_counts=counts(row("compile", "graph_break", detail="call to print"))),
    "low_precision_loss": evidence(op("sum", 1, phase=LOSS, shapes="[4096]", dtypes="bf16")),
    "idle_cpus": evidence(threads=1, cpus=4),
    "slow_convolution": evidence(op("_slow_conv2d_forward", 5, shapes=f"{IMAGE} [64,64,3,3]")),
    "suspected_denormals": evidence(SLOW, comparison=comparison(delta(SLOW, times=6))),
    "frozen_backward_for_norms": evidence(
        op("convolution_backward", 9, module="Net.layer1", phase=BACKWARD, shapes=IMAGE),
        program=program(
            layer("Net.bn1", "BatchNorm2d"), layer("Net.layer1", learns=False), layer("Net.head", "Linear")
        ),
    ),
    "unused_weight_gradients": evidence(
        op("convolution_backward", 9, module="Net.body", phase=BACKWARD, shapes=IMAGE),
        primitive("convolution", "jit:avx512_core", 2, direction="BWD_W", module="Net.body", phase=BACKWARD),
        program=program(layer("Net.stem"), layer("Net.body", learns=False)),
    ),
    "python_before_model": evidence(python(20, phase=LOAD, module="")),
    "loader_workers": evidence(program=program(loader_workers=(2,)), threads=2, cpus=2),
    "recompiles": evidence(op_counts=counts(row("compile", "recompile", detail="size of tensor"))),
}

QUIET = {
    "threads": evidence(
        threads=2, cpus=2, fingerprint=machine(limits=Limits(quota=QuotaState.LIMITED, quota_cpus=2.0))
    ),
    "reference_kernel": evidence(
        conv(5),
        primitive("convolution", "brg_conv_fwd:avx512_core", 5),
        primitive("matmul", "gemm:jit:f32", 5),
        primitive("rnn", "ref:any", 5),
    ),
    "emulated_dtype": evidence(
        linear(20, "bf16"),
        primitive("matmul", "brg_matmul:avx512_core_amx", 20, **BF16_CONV),
        fingerprint=machine(bf16=True, amx_bf16=False),
    ),
    "capped_isa": evidence(software=software(ONEDNN_MAX_CPU_ISA="ALL", OMP_NUM_THREADS="2")),
    "denormals": evidence(program=denormal(0)),
    "layout_lost": evidence(conv(20), conv(5, reads="contiguous", size=1, module="Net.squeeze")),
    "mixed_layouts": evidence(
        op("mul", 5, shapes=f"{IMAGE} {IMAGE}", layouts="channels_last"),
        op("native_batch_norm", 5, shapes=f"{IMAGE} [64]", layouts="channels_last contiguous"),
    ),
    "channels_last_untried": evidence(conv(30)),
    "reorders": evidence(reorder(4, calls=120)),
    "copies": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", dtypes="bf16 f32")),
    "casts": evidence(op("copy_", 8, shapes=f"{IMAGE} {IMAGE}", layouts="contiguous channels_last")),
    "bf16_untried": evidence(linear(20, "bf16"), linear(20, "f32"), fingerprint=machine(bf16=True)),
    "double_precision": evidence(op("add_", 5, shapes="[] []", dtypes="f32 f64", **ADAM)),
    "unfused_optimizer": evidence(op("_fused_adam_", 3, shapes="{62:11689512}", **ADAM)),
    "frozen_backward": evidence(op("convolution_backward", 9, phase=BACKWARD, shapes=IMAGE), program=program(*FROZEN)),
    "frozen_batch_norm": evidence(
        *frozen_norm("[2,64,1,1]"), op("native_batch_norm", 3, module="Net.bn2", shapes=IMAGE)
    ),
    "fragmented_trace": evidence(*tiny(3), python(10)),
    "allocator_faults": evidence(faults=20),
    "primitive_cache_misses": evidence(op_counts=counts(row("primitive", "convolution FWD_D", 60))),
    "input_pipeline": evidence(op("stack", 2, phase=LOAD, module="")),
    "graph_breaks": evidence(op_counts=counts(row("compile", "unique_graphs"), row("compile", "frames"))),
    "low_precision_loss": evidence(
        op("sum", 1, phase=LOSS, shapes="[4096]"), op("sum", 1, shapes="[4096]", dtypes="bf16")
    ),
}


@pytest.fixture(autouse=True)
def _one_measured_gain(monkeypatch):
    gain = made_gain("optimizer=fused", speedup=1.05)
    monkeypatch.setattr(gains, "known_gains", lambda: (gain,))


def test_every_code_is_tested_here_and_has_an_entry_in_the_catalogue():
    codes = [code for rule in RULES for code in rule.codes]
    assert len(set(codes)) == len(codes)
    assert set(codes) == set(FIRES) == {code.removeprefix(PREFIX) for code in sections()["advice"]}
    assert {rule.codes[0] for rule in RULES} == set(QUIET)


@pytest.mark.parametrize("code", sorted(FIRES))
def test_a_rule_finds_what_it_is_for_and_says_how_to_find_out(code):
    findings = [finding for finding in advise(FIRES[code], [rule_of(code)]) if finding.code == f"advice.{code}"]
    assert findings
    for finding in findings:
        assert finding.seen
        assert finding.share is None or 0 < finding.share <= 1
        assert finding.command.startswith("perfguard compare --baseline ")
        assert not finding.ops or finding.phases
        assert finding.subject.case_id == CASE


@pytest.mark.parametrize("code", sorted(QUIET))
def test_a_rule_leaves_alone_what_only_looks_like_it(code):
    assert advise(QUIET[code], [rule_of(code)]) == ()


def test_all_advice_reads_as_its_golden_file():
    text = "\n".join(
        "\n".join((finding_heading(finding), *(f"  {label:<6}{words}" for label, words in finding_rows(finding))))
        for code in sorted(FIRES)
        for finding in advise(FIRES[code], [rule_of(code)])
    )
    if os.environ.get("PERFGUARD_UPDATE_GOLDEN"):
        GOLDEN.write_text(f"{text}\n", encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == f"{text}\n"


FIELDS = Evidence.__struct_fields__


@settings(deadline=None)
@given(st.data())
def test_missing_evidence_is_never_an_error(data):
    """Fields of all steps above, mixed, and any of them left out."""
    sources = [*FIRES.values(), *QUIET.values()]
    names = data.draw(st.sets(st.sampled_from(FIELDS)))
    fields = {name: getattr(data.draw(st.sampled_from(sources)), name) for name in sorted(names)}
    for finding in advise(Evidence(**fields)):
        assert finding.seen
        if "target" not in fields:
            assert finding.command == ""


def test_nothing_known_is_nothing_found():
    assert advise(Evidence(target=Program())) == ()
