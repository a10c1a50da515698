"""The fused focal loss equals torchvision's formula, and goes wherever torch's own functions go."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from perfguard.kernels import focal_loss, sigmoid_focal_loss
from perfguard.kernels.build import compiled

GAMMAS = (0.0, 0.5, 1.0, 2.0, 3.7)
INF, NAN = math.inf, math.nan


def reference(inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """As torchvision 0.23 writes it."""
    p = torch.sigmoid(inputs)
    cross_entropy = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    losses = cross_entropy * (1 - p_t) ** gamma
    return (alpha * targets + (1 - alpha) * (1 - targets)) * losses if alpha >= 0 else losses


def logits_and_targets(*shape: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Hard and soft targets, and logits far beyond those of a trained network."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * 8
    targets = torch.rand(shape, generator=generator, dtype=torch.float64)
    targets = torch.where(targets < 0.4, 0.0, torch.where(targets < 0.8, 1.0, targets))
    return logits.to(dtype).requires_grad_(), targets.to(dtype)


def gradient_of(loss: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(loss, logits)[0]


@pytest.fixture(scope="module", autouse=True)
def _is_compiled():
    assert compiled("focal_loss") is not None


@pytest.mark.parametrize(("alpha", "gamma"), [*itertools.product((0.25, 1.0, -1.0), GAMMAS)])
def test_losses_and_gradients_equal_the_reference(alpha, gamma):
    logits, targets = logits_and_targets(1000)
    losses, expected = sigmoid_focal_loss(logits, targets, alpha, gamma), reference(logits, targets, alpha, gamma)
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-12)
    # The reference's own gradient cancels where a target is certain.
    torch.testing.assert_close(
        gradient_of(losses.sum(), logits), gradient_of(expected.sum(), logits), rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_types_are_computed_in_float32_and_rounded_once(dtype):
    logits, targets = logits_and_targets(1000, dtype=dtype)
    wide = logits.detach().double().requires_grad_()
    expected = reference(wide, targets.double())
    losses = sigmoid_focal_loss(logits, targets)
    assert losses.dtype is dtype
    # One rounding of the result, and a few of float32; the smallest numbers of float16 are denormal.
    tolerance = 0.51 * torch.finfo(dtype).eps + 4e-6
    torch.testing.assert_close(losses.double(), expected, rtol=tolerance, atol=1e-7)
    slopes, expected_slopes = gradient_of(losses.sum(), logits), gradient_of(expected.sum(), wide)
    torch.testing.assert_close(slopes.double(), expected_slopes, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(
    ("target", "factors"), [(0.0, (0.75, 0, 0.75, 0)), (1.0, (0, 0.25, 0, 0.25)), (0.5, (0.5, 0.5, 0.5, 0.5))]
)
def test_huge_and_infinite_logits_have_their_limits(gamma, target, factors):
    logits = torch.tensor([INF, -INF, 1e4, -1e4], requires_grad=True)
    losses = sigmoid_focal_loss(logits, torch.full_like(logits, target), gamma=gamma)
    # Far out the loss is a line: weight times the part of the target on the other side, to the power of gamma + 1.
    slopes = [factor * (0.5 ** (gamma + 1) if target == 0.5 else 1) for factor in factors]
    expected = [slope * size if slope else 0.0 for slope, size in zip(slopes, (INF, INF, 1e4, 1e4), strict=True)]
    assert losses.tolist() == pytest.approx(expected)
    signs = (1, -1, 1, -1)
    assert gradient_of(losses.sum(), logits).tolist() == pytest.approx(
        [sign * slope for sign, slope in zip(signs, slopes, strict=True)]
    )


def test_not_a_number_stays_one():
    logits = torch.tensor([NAN, 1.0, 2.0], requires_grad=True)
    losses = sigmoid_focal_loss(logits, torch.tensor([0.0, NAN, 1.0]))
    assert losses.isnan().tolist() == [True, True, False]
    assert gradient_of(losses.sum(), logits).isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("reduction", focal_loss.REDUCTIONS)
def test_first_and_second_derivatives_are_those_of_the_loss(reduction, gamma):
    logits, targets = logits_and_targets(24)
    near = (logits / 8).detach().requires_grad_()  # finite differences see nothing of a flat end

    def loss(values):
        return sigmoid_focal_loss(values, targets, 0.25, gamma, reduction)

    assert torch.autograd.gradcheck(loss, (near,))
    assert torch.autograd.gradgradcheck(loss, (near,))


def test_targets_may_learn_too():
    logits, targets = logits_and_targets(50)
    soft = targets.clamp(0.05, 0.95).requires_grad_()
    ours = torch.autograd.grad(sigmoid_focal_loss(logits, soft).sum(), (logits, soft))
    theirs = torch.autograd.grad(reference(logits, soft).sum(), (logits, soft))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("is_summed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operator_is_a_well_behaved_one(dtype, is_summed):
    logits, targets = logits_and_targets(5, 7, dtype=dtype)
    torch.library.opcheck(focal_loss._focal_loss, (logits, targets, 0.25, 2.0, 1.0, is_summed, True))
    torch.library.opcheck(focal_loss._focal_loss, (logits.detach(), targets, 0.25, 2.0, 0.5, is_summed, False))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # said by torch of itself
@pytest.mark.parametrize("reduction", focal_loss.REDUCTIONS)
def test_a_compiled_function_holds_it_in_one_graph(reduction):
    logits, targets = logits_and_targets(5, 7)

    def loss(logits, targets):
        return (3 * sigmoid_focal_loss(logits, targets, reduction=reduction)).sum()

    whole = torch.compile(loss, fullgraph=True, backend="aot_eager")(logits, targets)
    torch.testing.assert_close(whole, loss(logits, targets))
    torch.testing.assert_close(gradient_of(whole, logits), gradient_of(loss(logits, targets), logits))


@pytest.mark.parametrize("reduction", focal_loss.REDUCTIONS)
def test_transforms_of_functions_go_through_it(reduction):
    logits, targets = logits_and_targets(5, 7)
    logits = logits.detach()

    def loss(logits, targets):
        return sigmoid_focal_loss(logits, targets, reduction=reduction)

    def total(logits, targets):
        return loss(logits, targets).sum()

    by_row = [(loss(*pair), grad(total)(*pair)) for pair in zip(logits, targets, strict=True)]
    torch.testing.assert_close(vmap(loss)(logits, targets), torch.stack([row for row, _ in by_row]))
    torch.testing.assert_close(vmap(grad(total))(logits, targets), torch.stack([slope for _, slope in by_row]))
    shared = vmap(loss, in_dims=(1, None))(logits.t(), targets[0])
    torch.testing.assert_close(shared, torch.stack([loss(row, targets[0]) for row in logits]))
    of_batch = grad(lambda batch: vmap(total)(batch, targets).sum())(logits)
    torch.testing.assert_close(of_batch, torch.stack([slope for _, slope in by_row]))


def test_batched_gradients_multiply_the_slopes():
    logits, targets = logits_and_targets(6)
    weights = torch.tensor([1.0, -2.0, 0.5])
    loss = sigmoid_focal_loss(logits, targets, reduction="sum")
    (slopes,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (batched,) = torch.autograd.grad(loss, logits, weights.double(), is_grads_batched=True)
    torch.testing.assert_close(batched, weights[:, None] * slopes)


def test_backward_may_be_called_twice_and_gives_what_it_gave():
    logits, targets = logits_and_targets(6)
    loss = sigmoid_focal_loss(logits, targets, reduction="sum")
    loss.backward(retain_graph=True)
    first = logits.grad.clone()
    loss.backward()
    torch.testing.assert_close(logits.grad, 2 * first)


@pytest.mark.parametrize("reduction", focal_loss.REDUCTIONS)
def test_under_autocast_the_loss_is_float32_and_the_gradient_as_narrow_as_the_logits(reduction):
    logits, targets = logits_and_targets(64, dtype=torch.bfloat16)
    expected = reference(logits.detach().float(), targets.float())
    expected = {"none": expected, "sum": expected.sum(), "mean": expected.mean()}[reduction]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = sigmoid_focal_loss(logits, targets.float(), reduction=reduction)
    assert loss.dtype is torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    assert gradient_of(loss.sum(), logits).dtype is torch.bfloat16


def test_fake_and_meta_tensors_have_the_shapes_of_real_ones():
    logits = torch.empty(3, 4, device="meta", requires_grad=True)
    assert sigmoid_focal_loss(logits, torch.empty(3, 4, device="meta")).shape == (3, 4)
    assert sigmoid_focal_loss(logits, torch.empty(3, 4, device="meta"), reduction="sum").shape == ()


@pytest.mark.parametrize(
    "arrange",
    [
        lambda t: t.permute(2, 0, 1, 3),
        lambda t: t[:, 1::2, ::3],
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t[:1].expand(4, -1, -1, -1),
        lambda t: t.flip(3).transpose(0, 3),
    ],
    ids=["permuted", "sliced", "channels_last", "expanded", "flipped"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_layout_gives_the_same_numbers(arrange, dtype):
    logits, targets = (tensor.detach() for tensor in logits_and_targets(4, 6, 9, 33, dtype=dtype))
    first, second = arrange(logits).requires_grad_(), arrange(targets)
    packed = first.detach().contiguous().requires_grad_()
    losses, expected = sigmoid_focal_loss(first, second), sigmoid_focal_loss(packed, second.contiguous())
    torch.testing.assert_close(losses, expected, rtol=0, atol=0)
    torch.testing.assert_close(gradient_of(losses.sum(), first), gradient_of(expected.sum(), packed), rtol=0, atol=0)


def test_the_layout_of_logits_is_that_of_losses_and_gradients():
    logits, targets = logits_and_targets(2, 3, 8, 8, dtype=torch.float32)
    logits = logits.detach().to(memory_format=torch.channels_last).requires_grad_()
    losses = sigmoid_focal_loss(logits, targets)
    assert losses.is_contiguous(memory_format=torch.channels_last)
    assert gradient_of(losses.sum(), logits).is_contiguous(memory_format=torch.channels_last)


def test_empty_and_single_elements():
    nothing = torch.empty(0, 3, requires_grad=True)
    assert sigmoid_focal_loss(nothing, torch.empty(0, 3)).shape == (0, 3)
    total = sigmoid_focal_loss(nothing, torch.empty(0, 3), reduction="sum")
    assert (total.item(), gradient_of(total, nothing).shape) == (0.0, (0, 3))
    assert sigmoid_focal_loss(nothing, torch.empty(0, 3), reduction="mean").isnan()
    one = torch.tensor(0.0, requires_grad=True)
    loss = sigmoid_focal_loss(one, torch.tensor(1.0))
    assert loss.item() == pytest.approx(0.25 * 0.25 * math.log(2))
    assert loss.shape == gradient_of(loss, one).shape == ()


def test_more_elements_than_32_bits_count():
    size = 2**31 + 1000
    logits, targets = torch.tensor([0.5]).expand(size), torch.tensor([1.0]).expand(size)
    total = sigmoid_focal_loss(logits, targets, reduction="sum")
    assert total.item() == pytest.approx(size * sigmoid_focal_loss(logits[:1], targets[:1]).item(), rel=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_of_millions_are_exact_to_float32_and_the_same_each_time(threads):
    logits, targets = logits_and_targets(3_000_000, dtype=torch.float32)
    exact = reference(logits.detach().double(), targets.double()).sum().item()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        totals = {sigmoid_focal_loss(logits, targets, reduction="sum").item() for _ in range(3)}
    finally:
        torch.set_num_threads(before)
    assert [*totals] == [pytest.approx(exact, rel=1e-6)]


@pytest.mark.parametrize(
    ("error", "changed", "words"),
    [
        (ValueError, {"targets": torch.tensor([0.0, 1.5])}, "1.5"),
        (ValueError, {"targets": torch.tensor([-1.0, 1.0])}, "-1"),
        (ValueError, {"targets": torch.tensor([1.0])}, r"\(2,\).*\(1,\)"),
        (ValueError, {"gamma": -0.5}, "-0.5"),
        (ValueError, {"gamma": NAN}, "nan"),
        (ValueError, {"gamma": INF}, "inf"),
        (ValueError, {"alpha": 1.5}, "1.5"),
        (ValueError, {"alpha": NAN}, "nan"),
        (ValueError, {"reduction": "avg"}, "avg"),
        (TypeError, {"inputs": torch.tensor([1, 2])}, "int64"),
    ],
)
def test_what_has_no_focal_loss_is_refused(error, changed, words):
    arguments = {"inputs": torch.tensor([1.0, 2.0]), "targets": torch.tensor([0.0, 1.0]), **changed}
    with pytest.raises(error, match=words):
        sigmoid_focal_loss(**arguments)
