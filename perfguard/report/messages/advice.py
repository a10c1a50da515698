"""Advice from a profile: titles, evidence, what it brought elsewhere and what to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfguard.records.steps.findings import PREFIX, Finding
from perfguard.records.steps.ops import StepPhase
from perfguard.report.messages.evidence import EVIDENCE
from perfguard.report.messages.message import Message
from perfguard.report.messages.template import fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How a finding reads."""

    title: str
    """Template of its headline."""
    change: str
    """Template of what to change in the code or the environment."""
    about: str
    """When it is given, for `docs/codes.md`."""
    gain: str = "unknown"
    """What following it brought elsewhere, never an estimate for this step, with the paper, issue or measurement that
    says so."""


_FU = "Fu et al. (2022), arXiv:2206.10034"
_OWN = "measured by perfguard on an AMD EPYC"
_TOO_MANY = (
    "LayerNorm took 41 ms with two threads on one CPU, 0.24 ms with one; 45 times slower under an unnoticed quota "
    f"({_OWN}; ollama#17916)"
)
_KERNEL = (
    "a matrix product in f16 took 8.26 ms with an optimised kernel, 15,527 ms with the reference; convolutions in bf16 "
    "without theirs were 4 to 16 times slower (pytorch#193951, pytorch#183815)"
)
_KERNEL_CHANGE = (
    "the same shapes in f32 and in channels_last, and another torch release: each oneDNN has optimised kernels for "
    "other problems"
)
_FLUSH = "torch.set_flush_denormal(True) before torch starts its threads, which inherit the setting"
_DENORMALS = (
    "convolutions with denormal weights took 5, 40 and 50 times as long (pytorch#23862, pytorch#21734, pytorch#19651)"
)
_CHANNELS_LAST = f"a small convolution step took 46.6 ms contiguous, 29.7 ms channels_last ({_OWN} with AVX-512)"
_FROZEN = f"+16 % training speed of RetinaNet-ResNeXt50 without the backward of two frozen stages ({_FU})"
_LOADING = (
    "unknown; on CPUs, loader processes compete with the training threads and a faster image decoder is better "
    f"({_FU}, §2.4; Intel's MLPerf Training v3.0 results used none)"
)
_ONE_THREAD_EACH = "OMP_NUM_THREADS={wanted}, one thread for each CPU, and no torch.set_num_threads() in the program"

ADVICE: Mapping[str, Advice] = {
    "threads": Advice(
        title="more threads than CPUs",
        change=_ONE_THREAD_EACH,
        gain=_TOO_MANY,
        about="torch computes with more threads than the process may use CPUs.",
    ),
    "idle_cpus": Advice(
        title="fewer threads than CPUs",
        change=_ONE_THREAD_EACH,
        about="torch computes with fewer threads than the process may use CPUs.",
    ),
    "reference_kernel": Advice(
        title="oneDNN runs {primitive} as {is_reference?reference code|a plain matrix product}",
        change=_KERNEL_CHANGE,
        gain=_KERNEL,
        about="oneDNN has no optimised kernel for a primitive.",
    ),
    "slow_convolution": Advice(
        title="convolutions run outside oneDNN",
        change=f"{_KERNEL_CHANGE}; check that torch.backends.mkldnn is enabled",
        gain=_KERNEL,
        about="torch computes convolutions by its own slow kernels.",
    ),
    "emulated_dtype": Advice(
        title="{dtype} is emulated",
        change="{caps?unset |}[[{caps:names}]]{caps?|f32 on machines like this one: no autocast, or an optional one}",
        gain=(
            "without native bf16, a linear layer in bf16 was 38 times and a BERT step 10.7 times slower; products in "
            "bf16 and f16 on AVX2 were 44 to 500 times slower than in f32 (perfguard's docs/measurements; "
            "pytorch#146508, pytorch#118499)"
        ),
        about="The machine, or a cap, has no instructions for bf16 or f16 that the step computes in.",
    ),
    "capped_isa": Advice(
        title="a variable caps the instruction set",
        change="unset {caps}, unless results must stay bit-identical",
        gain=(
            "ONEDNN_MAX_CPU_ISA=AVX2 made a linear layer in bf16 38 times and a convolution in f32 9.5 % slower; a cap "
            "may also help: MKL_CBWR=AVX2 took 390 instead of 477 ms on a Xeon 4114 (perfguard's docs/measurements; "
            "intel-extension-for-pytorch#178)"
        ),
        about="A variable keeps oneDNN, ATen or MKL from instructions that the machine has.",
    ),
    "denormals": Advice(
        title="{is_slow?denormal values slow the step|there are denormal values}",
        change=_FLUSH,
        gain=_DENORMALS,
        about="Denormal values were counted.",
    ),
    "suspected_denormals": Advice(
        title="denormal values are suspected",
        change=_FLUSH,
        gain=_DENORMALS,
        about="Ops are so slow that denormal values are suspected.",
    ),
    "layout_lost": Advice(
        title="channels_last is lost within the model",
        change=(
            "keep the layout: find the .contiguous(), .view(), .reshape() or op without a channels_last kernel before "
            "the first of these convolutions; convert the input with x.to(memory_format=torch.channels_last)"
        ),
        gain=_CHANNELS_LAST,
        about="Some convolutions of a channels_last model read another layout.",
    ),
    "mixed_layouts": Advice(
        title="ops combine channels_last and contiguous tensors",
        change=(
            "x.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last)) on the output of "
            "the last convolution"
        ),
        about="Ops read tensors of one shape in two memory formats.",
    ),
    "channels_last_untried": Advice(
        title="all convolutions read contiguous tensors",
        change="model = model.to(memory_format=torch.channels_last), and the same for its input",
        gain=_CHANNELS_LAST,
        about="A model of convolutions does not use channels_last.",
    ),
    "reorders": Advice(
        title="oneDNN reorders tensors",
        change=(
            "model.to(memory_format=torch.channels_last), the input likewise; the rest are weights, which training "
            "changes and so reorders in each step"
        ),
        about="oneDNN spends time on copying tensors into other layouts.",
    ),
    "copies": Advice(
        title="tensors are copied unchanged",
        change=(
            "no .contiguous() or .clone() where the next op takes any layout; .view() for .reshape(), which fails "
            "where a copy is needed; out= for results"
        ),
        gain=(
            "unknown; .contiguous() on a channels_last tensor cost 100 times a plain copy (pytorch#172205, "
            "pytorch#34977, pytorch#44943)"
        ),
        about="Copies change nothing but a layout.",
    ),
    "casts": Advice(
        title="tensors are converted between dtypes",
        change=(
            "one dtype for neighbouring layers: leave small layers between f32 ones out of autocast, and give batches "
            "the dtype of the first layer"
        ),
        about="Copies change the dtype.",
    ),
    "double_precision": Advice(
        title="some ops compute in double precision",
        change="dtype=torch.float32 where these tensors are made, or .float() on what numpy gave",
        gain="unknown; f64 moves twice the bytes of f32, and half as many values fit into a vector",
        about="f64 in a step that is otherwise narrower.",
    ),
    "unfused_optimizer": Advice(
        title="{optimizer} updates {is_foreach?by foreach ops|one tensor at a time}",
        change="torch.optim.{optimizer}(…, fused=True)",
        gain=(
            f"a RetinaNet-ResNeXt50 step took 732 ms with Adam's loop, 717 ms with fused=True ({_OWN}); a fused LAMB "
            f"took 5.5 times less for the update ({_FU}, §2.7)"
        ),
        about="An optimizer runs as a loop or as foreach ops where torch has a fused kernel.",
    ),
    "frozen_backward": Advice(
        title="backward runs through layers before the first trained one",
        change=(
            "requires_grad_(False) on their parameters and no gradient for the model's input, or torch.no_grad() "
            "around them"
        ),
        gain=_FROZEN,
        about="Backward computes layers that nobody learns from.",
    ),
    "frozen_backward_for_norms": Advice(
        title="backward runs through frozen layers to norm layers",
        change="freeze these norm layers, too, if they are not meant to learn",
        gain=_FROZEN,
        about="Only norm layers keep frozen layers in backward.",
    ),
    "unused_weight_gradients": Advice(
        title="no optimizer uses some gradients of weights",
        change="requires_grad_(False) on these parameters, or hand them to an optimizer",
        gain=_FROZEN,
        about="Backward computes gradients of weights that are not updated.",
    ),
    "frozen_batch_norm": Advice(
        title="frozen batch norms run as a product and a sum",
        change=(
            "torch.nn.functional.batch_norm(x, mean, var, weight, bias, training=False), or fold scale and shift into "
            "the convolution before, in each step"
        ),
        gain=(
            "+29.8 % training speed of RetinaNet-ResNeXt50 with one kernel for it; potentially 30 % when fused into "
            f"the convolution ({_FU})"
        ),
        about="Frozen batch norms are written out as products and sums.",
    ),
    "fragmented_trace": Advice(
        title="the step consists of tiny ops",
        change=(
            "model.compile(), or torch.compile around the function with most of the tiny ops; a custom op for the rest"
        ),
        gain=(
            "a focal loss took 27.4 ms op by op, 9.5 ms with torch.compile, 3.7 ms as one C++ kernel "
            f"({_OWN}); an explicit kernel for it was twice as fast in bf16 ({_FU})"
        ),
        about="The step's time is in tiny ops and in Python.",
    ),
    "allocator_faults": Advice(
        title="each step takes new memory from the kernel",
        change=(
            "[[{variables}]]{variables?|reuse large buffers, or jemalloc by LD_PRELOAD: glibc keeps its memory "
            "already, so another allocator or the program itself causes the faults}"
        ),
        gain=(
            "LayerNorm took 257 to 527 µs with glibc's defaults, 240 to 247 µs with memory that is kept; elementwise "
            f"ops on large tensors gained 30 to 50 % ({_OWN}; pytorch#5412)"
        ),
        about="Page faults in steady steps.",
    ),
    "primitive_cache_misses": Advice(
        title="oneDNN creates primitives in a steady step",
        change="a larger cache; if that does not help, shapes are new in each step: pad batches to a few lengths",
        gain=("conv_transpose1d on inputs of changing length took 0.24 instead of 0.067 s (pytorch#133304)"),
        about="oneDNN's primitive cache misses in steady steps.",
    ),
    "input_pipeline": Advice(
        title="the step waits for its data",
        change="decode and transform once and keep the tensors, load larger pieces, or decode with Pillow-SIMD",
        gain=_LOADING,
        about="Loading data takes a large part of the step.",
    ),
    "python_before_model": Advice(
        title="Python delays the model, for its data or for something else",
        change="find what this line does besides loading, and take it out of the step",
        gain=_LOADING,
        about="Python before the model takes a large part of the step.",
    ),
    "loader_workers": Advice(
        title="data loaders compete with the training threads",
        change="DataLoader(…, num_workers=0), or fewer threads for training",
        gain=_LOADING,
        about="Loader processes and threads are more than the CPUs.",
    ),
    "graph_breaks": Advice(
        title="the compiled graph is broken",
        change="no printing, .item() or branches on values of tensors in the compiled part",
        about="torch.compile could not compile the code in one piece.",
    ),
    "recompiles": Advice(
        title="code is compiled more than once",
        change="the same shapes and plain Python values in every step, or torch._dynamo.mark_dynamic",
        about="torch.compile had to compile code again.",
    ),
    "low_precision_loss": Advice(
        title="the loss is reduced in low precision",
        change="loss_function(outputs.float(), targets), outside autocast",
        gain=(
            "none in time: RetinaNet's loss differs in bf16; keep losses in f32 unless convergence is proven "
            f"({_FU}, §2.6)"
        ),
        about="A loss is reduced in bf16 or f16.",
    ),
}
"""By code, without its prefix."""

ADVISED: Mapping[str, Message] = {
    **{PREFIX + code: Message(text=advice.title, about=advice.about) for code, advice in ADVICE.items()},
    **EVIDENCE,
}


def title_of(finding: Finding) -> str:
    """Its headline; the code where a newer version wrote it."""
    return _text(finding, "title") or finding.code


def change_of(finding: Finding) -> str:
    """What to try; empty for a code of a newer version."""
    return _text(finding, "change")


def gain_of(finding: Finding) -> str:
    """What following it brought elsewhere; empty for a code of a newer version."""
    return _text(finding, "gain")


def _text(finding: Finding, name: str) -> str:
    """As an older version recorded it, else from the catalogue."""
    recorded, advice = finding.values.get(name), ADVICE.get(finding.code.removeprefix(PREFIX))
    if recorded is not None or advice is None:
        return str(recorded or "")
    return fill(getattr(advice, name), finding)


def where_of(finding: Finding) -> str:
    """`forward and backward of ResNet.layer3, 4 places (train.py:88)`; empty where it has no place."""
    if (recorded := finding.values.get("where")) is not None:
        return str(recorded)
    if not finding.phases:
        return ""
    subject, *earlier, last = finding.subject, *(phase.value for phase in finding.phases)
    phases = f"{', '.join(earlier)} and {last}" if earlier else last
    if subject.op:
        phases = subject.op if finding.phases == (StepPhase.OPTIMIZER,) else f"{phases} of {subject.op}"
    places = f", {finding.places} places" if finding.places > 1 else ""
    return f"{phases}{places}{f' ({subject.place})' if subject.place else ''}"
