"""From profiles and samples to evidence."""

from __future__ import annotations

import math

import pytest

from perfguard.benchmarks.catalog import BENCHMARKS, SUITES
from perfguard.benchmarks.selection import select
from perfguard.errors import MeasurementError
from perfguard.records.run import CaseSamples
from perfguard.records.spec import Catalog
from perfguard.records.steps.ops import OpKey, OpTotal, PrimitiveTotal, StepPhase
from perfguard.study.items import CASE_STUDIES, KERNELS, MODELS
from perfguard.study.paired import kernel_blocks
from perfguard.study.paper import load_paper
from perfguard.study.profiled import compare_classes, library_shares, phases_of

CATALOG = Catalog(benchmarks=BENCHMARKS, suites=SUITES)


def primitive(library: str, name: str, direction: str, phase: StepPhase | None, time_s: float) -> PrimitiveTotal:
    return PrimitiveTotal(
        library=library, primitive=name, direction=direction, implementation="", memory="", problem="", calls=2.0,
        time_s=time_s, phase=phase,
    )  # fmt: skip


def op(phase: StepPhase, module: str, self_s: float) -> OpTotal:
    key = OpKey(phase=phase, module=module, op="aten::mul", shapes="", dtypes="", layouts="")
    return OpTotal(key=key, calls=1.0, self_s=self_s)


def test_library_calls_by_kind_largest_first() -> None:
    shares = library_shares(
        [
            primitive("onednn", "convolution", "BWD_W", StepPhase.BACKWARD, 0.5),
            primitive("mkl", "sgemm", "", StepPhase.FORWARD, 0.1),
            primitive("mkl", "gemm_s8u8s32", "", StepPhase.FORWARD, 0.1),
            primitive("onednn", "reorder", "", StepPhase.FORWARD, 0.1),
            primitive("onednn", "reorder", "", StepPhase.BACKWARD, 0.1),
            primitive("mkl", "sgemm", "", StepPhase.BACKWARD, 0.1),
        ]
    )
    assert [(s.name, s.direction, pytest.approx(s.share), s.calls) for s in shares] == [
        ("convolution", "BWD_W", 0.5, 2.0),
        ("MKL gemm", "forward", 0.2, 4.0),
        ("reorder", "", 0.2, 4.0),
        ("MKL gemm", "backward", 0.1, 2.0),
    ]
    assert library_shares([]) == ()


def test_phases_of_a_detector_and_the_loss_within_its_root() -> None:
    found = phases_of(
        [
            op(StepPhase.FORWARD, "RetinaNet.backbone.body.conv1", 1.0),
            op(StepPhase.FORWARD, "RetinaNet.head.classification_head", 2.0),
            op(StepPhase.FORWARD, "RetinaNet", 4.0),
            op(StepPhase.LOSS, "", 8.0),
            op(StepPhase.BACKWARD, "RetinaNet", 16.0),
            op(StepPhase.BACKWARD, "RetinaNet.head", 32.0),
            op(StepPhase.OPTIMIZER, "Adam", 64.0),
        ]
    )
    assert found == {
        "backbone": 1.0, "head": 2.0, "loss": 4.0, "forward": 15.0, "backward": 48.0, "loss backward": 16.0
    }  # fmt: skip


def test_classes_are_compared_in_pairs_of_processes() -> None:
    few = [{"loss": 1.0, "backward": 4.0, "loss backward": 1.0}, {"loss": 2.0, "backward": 8.0, "loss backward": 2.0}]
    many = [{"loss": 3.0, "backward": 8.0, "loss backward": 4.0}, {"loss": 6.0, "backward": 16.0, "loss backward": 8.0}]
    found = compare_classes("case", few, many)
    assert [(p.phase, math.exp(p.ratio.log_ratio)) for p in found.phases] == [
        ("loss", pytest.approx(3.0)),
        ("backward", pytest.approx(2.0)),
    ]
    assert found.loss_backward_share == 0.5
    with pytest.raises(MeasurementError):
        compare_classes("case", [{**few[0], "loss": 0.0}], many[:1])


def test_blocks_with_both_phases_count() -> None:
    cases = select(CATALOG, KERNELS)
    ids = {(str(dict(case.parameters)["dtype"]), case.phase.value): case.id for case in cases}
    assert len(ids) == 4

    def samples(dtype: str, phase: str, block: int, baseline: float, candidate: float) -> CaseSamples:
        return CaseSamples(
            case_id=ids[dtype, phase], block=block, baseline_s=(baseline,) * 3, candidate_s=(candidate,) * 3, wall_s=1.0
        )

    blocks = kernel_blocks(
        cases,
        [
            samples("fp32", "forward", 0, 2.0, 1.0),
            samples("fp32", "forward+backward", 0, 5.0, 3.0),
            samples("fp32", "forward+backward", 1, 5.0, 3.0),
        ],
    )
    assert [(b.dtype, b.block, b.reference_both_s, b.variant_forward_s) for b in blocks] == [("fp32", 0, 5.0, 1.0)]


@pytest.mark.parametrize("pattern", [*MODELS.values(), *dict.fromkeys(toggle.case for toggle in CASE_STUDIES)])
def test_each_item_names_one_case_of_the_catalogue(pattern: str) -> None:
    assert [case.id for case in select(CATALOG, (pattern,))] == [pattern]


def test_case_studies_with_a_toggle_stand_in_the_papers_list() -> None:
    assert {toggle.name for toggle in CASE_STUDIES} <= {case.name for case in load_paper().cases}
