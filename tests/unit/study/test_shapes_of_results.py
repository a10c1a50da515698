"""Each claim of the paper on evidence where it holds, and on evidence where it does not."""

from __future__ import annotations

import pytest

from perfguard.records.facts import fact
from perfguard.study.evidence import RankCell, StudyEvidence
from perfguard.study.paper import Convergence, load_paper
from perfguard.study.shapes.judge import shapes_of
from perfguard.study.shapes.scaling import convergence_shape, fitted
from perfguard.study.shapes.shape import JudgedClaim, ShapeOutcome
from tests.changed_values import replace
from tests.made_studies import (
    EVIDENCE,
    NOTHING,
    RATIOS,
    classes,
    donut,
    kernel,
    toggle,
    with_donut,
    with_kernel,
    with_toggle,
)

PAPER = load_paper()
HOLDS, FAILS, OPEN, NOT_MEASURED = ShapeOutcome


def shape(evidence: StudyEvidence, code: str, **values: object) -> JudgedClaim:
    """The only shape of this code and these values."""
    (found,) = (
        shape
        for shape in shapes_of(evidence, PAPER)
        if shape.claim.code == code and all(shape.claim.values.get(name) == value for name, value in values.items())
    )
    return found


def reasons(found: JudgedClaim) -> list[str]:
    return [reason.code for reason in found.reasons]


def test_everything_that_is_measured_holds_on_evidence_like_the_papers() -> None:
    measured = [shape for shape in shapes_of(EVIDENCE, PAPER) if shape.outcome is not NOT_MEASURED]
    assert [shape.claim.values.get("name") for shape in measured if shape.outcome is not HOLDS] == ["loss"]


def test_without_evidence_only_published_convergence_points_are_judged() -> None:
    judged = [shape.claim.code for shape in shapes_of(NOTHING, PAPER) if shape.outcome is not NOT_MEASURED]
    assert judged == ["study.convergence"] * 4


def test_what_is_not_measured_says_why() -> None:
    failed = fact("study.item_failed", item="donuts-lstm", error="no memory")
    evidence = replace(NOTHING, problems={"donuts-lstm": failed})
    assert shape(evidence, "study.recurrent_primitive").reasons == (failed,)
    assert reasons(shape(evidence, "study.products_dominate")) == ["study.part_not_asked"]
    assert all(shape.reasons for shape in shapes_of(evidence, PAPER) if shape.outcome is NOT_MEASURED)


class TestDonuts:
    @pytest.mark.parametrize(("model", "label"), [("resnet18", "ResNet18"), ("retinanet", "RetinaNet-ResNeXt50")])
    def test_backward_convolutions_beside_forward_ones(self, model: str, label: str) -> None:
        slow_forward = donut(model, {("convolution", "BWD_W"): 0.4, ("convolution", "FWD_D"): 0.6})
        found = shape(with_donut(slow_forward), "study.backward_exceeds_forward", model=label)
        assert (found.outcome, found.claim.values["backward_share"]) == (FAILS, 0.4)
        assert shape(EVIDENCE, "study.backward_exceeds_forward", model=label).outcome is HOLDS

    def test_recurrent_networks_count_all_library_calls(self) -> None:
        slow_forward = donut("lstm", {("MKL gemm", "backward"): 0.45, ("MKL gemm", "forward"): 0.55})
        found = shape(with_donut(slow_forward), "study.backward_exceeds_forward", model="LSTM")
        assert (found.outcome, found.claim.values["forward_share"]) == (FAILS, 0.55)

    def test_convolutions_that_mkl_computes_are_said(self) -> None:
        products = {("convolution", "BWD_W"): 0.3, ("convolution", "FWD_D"): 0.2, ("MKL gemm", "backward"): 0.5}
        evidence = with_donut(donut("retinanet", products))
        found = shape(evidence, "study.backward_exceeds_forward", model="RetinaNet-ResNeXt50")
        assert [reason.values for reason in found.reasons] == [{"gemm_share": 0.5}]

    @pytest.mark.parametrize(
        ("rnn", "outcome", "why"),
        [(0.6, HOLDS, []), (0.4, FAILS, ["study.decoder_products"]), (0.0, FAILS, ["study.native_lstm"])],
    )
    def test_an_lstm_is_one_primitive_or_it_says_what_it_is(
        self, rnn: float, outcome: ShapeOutcome, why: list[str]
    ) -> None:
        shares = {("MKL gemm", "backward"): 1 - rnn, **({("rnn", "BWD_DW"): rnn} if rnn else {})}
        found = shape(with_donut(donut("lstm", shares)), "study.recurrent_primitive")
        assert (found.outcome, reasons(found)) == (outcome, why)

    @pytest.mark.parametrize(("products", "outcome"), [(0.8, HOLDS), (0.79, FAILS)])
    def test_a_transformer_is_matrix_products(self, products: float, outcome: ShapeOutcome) -> None:
        shares = {("inner_product", "FWD_D"): products / 2, ("matmul", ""): products / 2, ("eltwise", ""): 1 - products}
        assert shape(with_donut(donut("transformer", shares)), "study.products_dominate").outcome is outcome

    def test_frozen_batch_norms_have_no_kernel(self) -> None:
        assert shape(EVIDENCE, "study.no_batch_norm").claim.values == {"norm_share": 0.0, "other_share": 0.05}
        trained = donut("retinanet", {("convolution", "BWD_W"): 1.0}, norm_share=0.02)
        assert shape(with_donut(trained), "study.no_batch_norm").outcome is FAILS

    def test_a_step_without_library_calls_is_not_judged(self) -> None:
        found = shape(with_donut(donut("transformer", {})), "study.products_dominate")
        assert (found.outcome, reasons(found)) == (NOT_MEASURED, ["study.no_library_calls"])


class TestPhases:
    @pytest.mark.parametrize(("loss", "spread", "outcome"), [(3.2, 0.02, HOLDS), (2.5, 0.02, FAILS), (3.0, 0.2, OPEN)])
    def test_the_loss_and_the_classes(self, loss: float, spread: float, outcome: ShapeOutcome) -> None:
        evidence = replace(EVIDENCE, classes=classes({**RATIOS, "loss": loss}, spread=spread))
        assert shape(evidence, "study.loss_superlinear").outcome is outcome

    def test_another_phase_may_grow_more_than_the_loss(self) -> None:
        evidence = replace(EVIDENCE, classes=classes({**RATIOS, "head": 6.0}))
        found = shape(evidence, "study.loss_grows_most")
        assert (found.outcome, found.claim.values["phase"]) == (FAILS, "head")


class TestKernels:
    def test_an_explicit_backward_that_gains_less_than_twice(self) -> None:
        evidence = with_kernel(kernel("explicit", forward=0.6, backward=0.8))
        found = shape(evidence, "study.explicit_total", dtype="fp32")
        assert (found.outcome, reasons(found)) == (FAILS, ["study.passes_over_memory"])

    def test_an_interval_around_the_limit_leaves_it_open(self) -> None:
        evidence = with_kernel(kernel("explicit", forward=0.5, backward=0.5, noise=0.05))
        assert shape(evidence, "study.explicit_total", dtype="bf16").outcome is OPEN

    def test_an_implicit_backward_that_is_faster_than_the_defaults(self) -> None:
        evidence = with_kernel(kernel("implicit", forward=0.5, backward=0.7))
        assert shape(evidence, "study.implicit_backward_slower", dtype="fp32").outcome is FAILS

    @pytest.mark.parametrize(
        ("has_bf16", "why"), [(True, "study.bf16_element_wise"), (False, "study.no_bf16")], ids=["with", "without"]
    )
    def test_bf16_that_gains_little_says_whether_the_cpu_has_it(self, has_bf16: bool, why: str) -> None:
        evidence = with_kernel(kernel("explicit", forward=0.3, backward=0.5, bf16=0.9))
        evidence = replace(evidence, machine=replace(evidence.machine, has_bf16=has_bf16))
        found = shape(evidence, "study.bf16_halves")
        assert (found.outcome, reasons(found)) == (FAILS, [why])

    def test_a_variant_that_computes_something_else_is_not_judged(self) -> None:
        evidence = with_kernel(replace(kernel("explicit", forward=0.3, backward=0.5), is_different=True))
        found = shape(evidence, "study.explicit_total", dtype="fp32")
        assert (found.outcome, reasons(found)) == (NOT_MEASURED, ["study.different_results"])


class TestCaseStudies:
    @pytest.mark.parametrize(("gain", "spread", "outcome"), [(1.2, 0.02, HOLDS), (0.9, 0.02, FAILS), (1.0, 0.02, OPEN)])
    def test_a_toggle(self, gain: float, spread: float, outcome: ShapeOutcome) -> None:
        found = shape(with_toggle(toggle("folded", gain, spread=spread)), "study.gain", name="folded")
        assert (found.outcome, found.claim.values["factor"]) == (outcome, pytest.approx(gain))

    def test_all_together_must_double_the_speed(self) -> None:
        assert reasons(shape(with_toggle(toggle("overall", 1.6)), "study.gain", name="overall")) == [
            "study.small_images"
        ]

    def test_a_loss_in_float32_may_cost_time(self) -> None:
        assert shape(with_toggle(toggle("loss", 0.8)), "study.gain", name="loss").outcome is OPEN

    def test_different_results_are_no_gain(self) -> None:
        evidence = with_toggle(replace(toggle("dtype", 3.0), is_different=True))
        found = shape(evidence, "study.gain", name="dtype")
        assert (found.outcome, reasons(found)) == (FAILS, ["study.different_results"])

    def test_bf16_without_instructions_for_it_says_so(self) -> None:
        evidence = with_toggle(toggle("dtype", 0.7))
        evidence = replace(evidence, machine=replace(evidence.machine, has_bf16=False))
        assert reasons(shape(evidence, "study.gain", name="dtype")) == ["study.no_bf16"]

    @pytest.mark.parametrize(("share", "outcome"), [(0.4, HOLDS), (0.1, FAILS)])
    def test_backward_of_the_loss_with_many_classes(self, share: float, outcome: ShapeOutcome) -> None:
        evidence = replace(EVIDENCE, classes=classes(RATIOS, loss_backward_share=share))
        assert shape(evidence, "study.loss_backward").outcome is outcome


class TestRanks:
    def test_more_threads_in_one_rank_may_win(self) -> None:
        cells = (
            RankCell(threads=1, ranks=2, throughput_per_s=3.0, rounds=4, sd_ratio=0.0),
            RankCell(threads=2, ranks=1, throughput_per_s=3.5, rounds=4, sd_ratio=0.0),
        )
        found = shape(replace(EVIDENCE, ranks=cells), "study.ranks_win")
        assert (found.outcome, found.claim.values) == (FAILS, {"pairs": 1, "won": 0})

    @pytest.mark.parametrize(("sd_ratio", "outcome"), [(0.01, HOLDS), (0.2, OPEN), (None, OPEN)])
    def test_rounds_that_scatter_leave_it_open(self, sd_ratio: float | None, outcome: ShapeOutcome) -> None:
        cells = tuple(
            RankCell(
                threads=2 // ranks,
                ranks=ranks,
                throughput_per_s=rate,
                rounds=1 if sd_ratio is None else 4,
                sd_ratio=sd_ratio,
            )
            for ranks, rate in ((1, 3.0), (2, 3.5))
        )
        assert shape(replace(EVIDENCE, ranks=cells), "study.ranks_win").outcome is outcome

    def test_cells_on_different_numbers_of_cpus_are_not_compared(self) -> None:
        cells = (
            RankCell(threads=1, ranks=1, throughput_per_s=2.0, rounds=4, sd_ratio=0.0),
            RankCell(threads=1, ranks=2, throughput_per_s=3.9, rounds=4, sd_ratio=0.0),
        )
        found = shape(replace(EVIDENCE, ranks=cells), "study.ranks_win")
        assert (found.outcome, reasons(found)) == (NOT_MEASURED, ["study.needs_ranks"])


class TestConvergence:
    def test_a_line_through_points_on_a_line(self) -> None:
        points = Convergence(benchmark="x", batch=(10, 20, 40), ratio=(1.0, 1.5, 2.5))
        assert fitted(points) == pytest.approx((0.5, 0.5))

    def test_larger_batches_that_need_fewer_epochs(self) -> None:
        points = Convergence(benchmark="x", batch=(10, 20, 40), ratio=(1.0, 0.9, 0.8))
        assert convergence_shape(points).outcome is FAILS
