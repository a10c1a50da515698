"""Every built-in benchmark really runs: steps learn, kernels are finite, and a seed fixes the numbers."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from perfguard.benchmarks.catalog import BENCHMARKS  # noqa: E402 - torch must be known to be there first
from perfguard.errors import MeasurementError, UsageError  # noqa: E402
from perfguard.records.spec import Phase  # noqa: E402
from perfguard.worker.cases import prepare_case  # noqa: E402
from perfguard.worker.results import checks_of  # noqa: E402
from tests.cpu_features import DTYPES_OF_STEPS  # noqa: E402

if TYPE_CHECKING:
    from perfguard.benchmarks.api import Timed

pytestmark = pytest.mark.torch

TARGETS = {spec.name: spec.target for spec in BENCHMARKS}

SMALL_STEPS: dict[str, dict[str, Any]] = {
    "step.resnet18": {"image_size": 64, "batch": 2, "memory_format": "channels_last"},
    "step.resnet50": {"image_size": 64, "batch": 2, "memory_format": "channels_last"},
    "step.retinanet_resnext50": {
        # At 64 pixels the last stage convolves 1x1 images, where the bf16 weight gradient of oneDNN in torch 2.13 holds
        # whatever was in memory: NaN, now and then.
        "image_size": 96,
        "classes": 11,
        "batch": 1,
        "memory_format": "channels_last",
    },
    "step.bert": {"layers": 2, "hidden": 64, "sequence": 32, "batch": 4, "vocabulary": 512},
    "step.dlrm": {"batch": 64, "rows": 500, "features": 16},
    "step.lstm_lm": {"layers": 2, "hidden": 64, "sequence": 16, "batch": 8, "vocabulary": 512},
    "step.mobilenetv3": {"variant": "small", "image_size": 64, "batch": 4, "memory_format": "contiguous"},
}

SMALL_KERNELS: dict[str, dict[str, Any]] = {
    "kernel.linear": {"m": 16, "in_features": 32, "out_features": 64},
    "kernel.matmul": {"size": 32},
    "kernel.bmm": {"batch": 4, "size": 16, "inner": 8},
    "kernel.sdpa": {"sequence": 32, "causal": True, "heads": 2, "head_dim": 16},
    "kernel.conv1x1": {"channels": 16, "size": 8, "memory_format": "channels_last"},
    "kernel.conv3x3": {"channels": 16, "size": 8, "memory_format": "channels_last"},
    "kernel.conv_grouped": {"channels": 64, "size": 8, "memory_format": "contiguous"},
    "kernel.conv_depthwise": {"channels": 16, "size": 8, "memory_format": "channels_last"},
    "kernel.batch_norm": {"channels": 16, "size": 8, "memory_format": "channels_last"},
    "kernel.layer_norm": {"tokens": 16, "features": 64},
    "kernel.softmax": {"sequence": 32, "rows": 16},
    "kernel.gelu": {"tokens": 16, "features": 64},
    "kernel.embedding_bag": {"bags": 16, "rows": 100, "lookups": 4},
    "kernel.cross_entropy": {"rows": 16, "classes": 50},
    "kernel.focal_loss": {"anchors": 900, "classes": 7},
    "kernel.lstm": {"hidden": 16, "sequence": 8, "batch": 4},
    "kernel.cat": {"rows": 16},
    "kernel.copy": {"rows": 16},
    "kernel.transpose": {"rows": 16},
}

DTYPES = ("fp32", "bf16")
OPTIMIZERS = ("for-loop", "foreach", "fused")


def build(name: str, **parameters: object) -> Timed:
    module, _, factory = TARGETS[name].partition(":")
    torch.manual_seed(1234)
    timed: Timed = getattr(import_module(module), factory)(**parameters)
    return timed


def test_every_benchmark_is_tested_here() -> None:
    # hetero/test_training_cases.py and tasks/test_query_cases.py
    elsewhere = {"hetero.covtype", "hetero.w8a", "task.digits", "task.ssd_mobilenetv2"}
    assert {*SMALL_STEPS, *SMALL_KERNELS, "kernel.optimizer"} == set(TARGETS) - elsewhere


@pytest.mark.parametrize("dtype", DTYPES_OF_STEPS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if "retinanet" in name else name for name in SMALL_STEPS]
)
def test_loss_of_a_step_goes_down_and_is_fixed_by_the_seed(name: str, dtype: str) -> None:
    parameters = {**SMALL_STEPS[name], "dtype": dtype, "mode": "eager"}
    step = build(name, **parameters)
    losses = [step() for _ in range(20)]
    assert all(loss.ndim == 0 and not loss.requires_grad and torch.isfinite(loss) for loss in losses)
    assert fmean(map(float, losses[-3:])) < fmean(map(float, losses[:3]))

    again = build(name, **parameters)
    assert [float(again()) for _ in range(3)] == [float(loss) for loss in losses[:3]]


@pytest.mark.parametrize("phase", [Phase.FORWARD.value, Phase.FORWARD_BACKWARD.value])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SMALL_KERNELS)
def test_kernel_is_finite_and_the_same_at_every_call(name: str, dtype: str, phase: str) -> None:
    parameters = {**SMALL_KERNELS[name], "dtype": dtype, "phase": phase}
    kernel = build(name, **parameters)
    first = kernel().clone()
    assert torch.isfinite(first).all()
    assert torch.equal(kernel(), first)
    assert torch.equal(build(name, **parameters)(), first)


@pytest.mark.parametrize("mode", ["for-loop", "foreach", "fused"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ["sgd", "adam", "adamw", "adagrad"])
def test_optimizer_update_is_finite_and_fixed_by_the_seed(algorithm: str, dtype: str, mode: str) -> None:
    parameters = {"layers": 1, "hidden": 16, "algorithm": algorithm, "dtype": dtype, "mode": mode}
    update, again = build("kernel.optimizer", **parameters), build("kernel.optimizer", **parameters)
    values = [update() for _ in range(3)]
    assert all(torch.isfinite(value).all() for value in values)
    assert all(torch.equal(again(), value) for value in values)


@pytest.mark.parametrize("algorithm", ["sgd", "adam", "adamw", "adagrad"])
def test_the_three_implementations_of_an_optimizer_agree(algorithm: str) -> None:
    parameters = {"layers": 1, "hidden": 16, "algorithm": algorithm, "dtype": "fp32"}
    loop, foreach, fused = (
        build("kernel.optimizer", mode=mode, **parameters)() for mode in ("for-loop", "foreach", "fused")
    )
    torch.testing.assert_close(foreach, loop)
    torch.testing.assert_close(fused, loop)


def test_channels_last_gives_the_same_loss_as_contiguous() -> None:
    parameters = {**SMALL_STEPS["step.mobilenetv3"], "dtype": "fp32", "mode": "eager"}
    contiguous = build("step.mobilenetv3", **parameters)()
    channels_last = build("step.mobilenetv3", **{**parameters, "memory_format": "channels_last"})()
    torch.testing.assert_close(channels_last, contiguous)


def checks_of_first_call(name: str, **parameters: object) -> dict[str, float]:
    """What the worker would record of a freshly set up benchmark."""
    timed = build(name, **parameters)
    phase = str(parameters.get("phase", "optimizer" if name == "kernel.optimizer" else "step"))
    return checks_of(timed, timed(), {"id": name, "phase": phase})


@pytest.mark.parametrize("dtype", DTYPES_OF_STEPS)
@pytest.mark.parametrize("name", SMALL_STEPS)
def test_a_step_is_recognised_by_its_loss_and_its_gradients(name: str, dtype: str) -> None:
    parameters = {**SMALL_STEPS[name], "dtype": dtype, "mode": "eager"}
    checks = checks_of_first_call(name, **parameters)
    assert checks.keys() == {"loss", "gradient_norm"}
    assert min(checks.values()) > 1e-4
    assert checks_of_first_call(name, **parameters) == checks


@pytest.mark.parametrize("dtype", DTYPES_OF_STEPS)
@pytest.mark.parametrize("name", SMALL_KERNELS)
def test_a_kernel_is_recognised_by_its_result_and_its_gradients(name: str, dtype: str) -> None:
    backward = checks_of_first_call(name, **SMALL_KERNELS[name], dtype=dtype, phase=Phase.FORWARD_BACKWARD.value)
    assert backward.keys() == {"result_norm", "gradient_norm"}
    assert min(backward.values()) > 1e-4
    forward = checks_of_first_call(name, **SMALL_KERNELS[name], dtype=dtype, phase=Phase.FORWARD.value)
    assert len(forward) == 1


def test_clipped_gradients_are_recognised_by_their_norm_before_clipping() -> None:
    parameters = {**SMALL_STEPS["step.lstm_lm"], "dtype": "fp32", "mode": "eager"}
    assert checks_of_first_call("step.lstm_lm", **parameters)["gradient_norm"] != pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize("algorithm", ["sgd", "adam", "adamw", "adagrad"])
def test_an_optimizer_is_recognised_by_what_it_remembers_of_the_gradients(algorithm: str) -> None:
    parameters = {"layers": 1, "hidden": 16, "algorithm": algorithm, "dtype": "bf16"}
    norms = [checks_of_first_call("kernel.optimizer", mode=mode, **parameters)["state_norm"] for mode in OPTIMIZERS]
    assert norms[0] > 0.01
    assert norms == pytest.approx([norms[0]] * 3, rel=0.01)


def test_compile_without_a_compiler_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("torch._inductor.config")  # It reads the compiler's name once
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MeasurementError, match=r"needs a C\+\+ compiler, and 'no-such-compiler'"):
        build("step.dlrm", **SMALL_STEPS["step.dlrm"], dtype="fp32", mode="compile")


# torch's own import of Dynamo uses its deprecated scripting.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.skipif(shutil.which("g++") is None, reason="mode=compile needs g++")
def test_two_instances_of_a_compiled_step_run_the_same_graphs() -> None:
    case = {
        "id": "step.bert[tiny]",
        "target": TARGETS["step.bert"],
        "parameters": {**SMALL_STEPS["step.bert"], "dtype": "fp32", "mode": "compile"},
        "phase": "step",
    }
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    found = prepare_case(case, seed=1, check=False, instances=2)
    assert len(found.calls) == 2
    assert graphs["unique_graphs"] == before + 1


def test_compile_that_compiles_nothing_does_not_pass_for_compiled() -> None:
    with pytest.raises(MeasurementError, match="compiled nothing of LSTMLanguageModel"):
        build("step.lstm_lm", **SMALL_STEPS["step.lstm_lm"], dtype="fp32", mode="compile")


def test_wrong_names_are_usage_errors() -> None:
    kernel = SMALL_KERNELS["kernel.conv3x3"]
    with pytest.raises(UsageError, match="unknown dtype 'fp8'"):
        build("kernel.conv3x3", **kernel, dtype="fp8", phase="forward")
    with pytest.raises(UsageError, match="unknown memory format 'nhwc'"):
        build("kernel.conv3x3", **{**kernel, "memory_format": "nhwc"}, dtype="fp32", phase="forward")
    with pytest.raises(UsageError, match="no phase 'backward'"):
        build("kernel.conv3x3", **kernel, dtype="fp32", phase="backward")
    with pytest.raises(UsageError, match="unknown mode 'jit'"):
        build("step.dlrm", **SMALL_STEPS["step.dlrm"], dtype="fp32", mode="jit")


def test_unknown_stack_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFGUARD_STACK", "onednn")
    with pytest.raises(UsageError, match="PERFGUARD_STACK='onednn' is unknown"):
        build("step.dlrm", **SMALL_STEPS["step.dlrm"], dtype="fp32", mode="eager")


def test_missing_ipex_is_reported_with_the_torch_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFGUARD_STACK", "ipex")
    # None in sys.modules makes an import fail, also where IPEX is installed.
    monkeypatch.setitem(sys.modules, "intel_extension_for_pytorch", None)
    with pytest.raises(MeasurementError, match=rf"with torch {torch.__version__.partition('+')[0]}"):
        build("step.dlrm", **SMALL_STEPS["step.dlrm"], dtype="fp32", mode="eager")
