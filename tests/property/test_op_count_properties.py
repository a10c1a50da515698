from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.changes.counted import Residue
from perfguard.profile.changes.op_counts import classify, compare_op_counts
from perfguard.profile.op_counts.steady import ALLOCATIONS, CACHE_MISS, sorted_rows
from perfguard.records.steps.ops import OpCountKind, OpCountRow, OpCounts, StepPhase
from perfguard.report.messages.catalog import describe, messages
from perfguard.store.op_counts import load_op_counts, op_counts_text, save_op_counts
from tests.changed_values import replace
from tests.op_count_rows import NCHW, NHWC, NHWC_BF16, TO_BLOCKED

OPS = [
    "conv2d",
    "convolution",
    "mkldnn_convolution",
    "_slow_conv2d_forward",
    "linear",
    "addmm",
    "mm",
    "bmm",
    "relu",
    "mul_",
    "add",
    "batch_norm",
    "native_batch_norm",
    "rsqrt",
    "contiguous",
    "clone",
    "copy_",
    "to",
    "_to_copy",
    "empty",
    "view",
    "_fused_adam_",
    "_foreach_mul_",
    "addcdiv_",
    "_softmax",
    "matmul",
    "_scaled_dot_product_flash_attention_for_cpu",
]
MODULES = ["", "Net", "Net.layer1.*.conv1", "Net.layer1.*", "Net.layer2.*.conv1", "Adam"]
OP_DETAILS = [
    f"{shape} | {dtype} | {layout}"
    for shape in ("[2,3]", "[4,3]")
    for dtype in ("f32", "bf16")
    for layout in ("contiguous", "channels_last")
] + [""]
PRIMITIVES = ["convolution FWD_D", "matmul", "reorder", "sgemm"]
PRIMITIVE_DETAILS = [
    f"{memory} | {problem}" for memory in (NHWC, NCHW, NHWC_BF16, TO_BLOCKED) for problem in ("mb2_ic3", "2x64x8x8")
] + [f"{NHWC} | mb2_ic3 | attr-fpmath:bf16"]
CHOICES = ["", "ref:any", "gemm:jit", "jit:avx2", "jit:uni", "brg:avx512_core_fp16", "brg:avx10_1_512"]

places = {"phase": st.sampled_from(StepPhase), "module": st.sampled_from(MODULES), "count": st.integers(1, 4)}
plain = {"detail": st.just(""), "implementation": st.just("")}


def rows_of(kind, names, **fields):
    return st.builds(OpCountRow, kind=st.just(kind), name=st.sampled_from(names), **(places | plain | fields))


rows = st.one_of(
    rows_of(OpCountKind.OP, [f"aten::{name}" for name in OPS], detail=st.sampled_from(OP_DETAILS)),
    rows_of(
        OpCountKind.PRIMITIVE,
        PRIMITIVES,
        detail=st.sampled_from(PRIMITIVE_DETAILS),
        implementation=st.sampled_from(CHOICES),
    ),
    rows_of(OpCountKind.PRIMITIVE, [CACHE_MISS], detail=st.sampled_from(PRIMITIVES)),
    rows_of(OpCountKind.ALLOCATION, [ALLOCATIONS], size_bytes=st.integers(0, 1000)),
    rows_of(OpCountKind.COMPILE, ["graph_break", "recompile"], detail=st.sampled_from(["", "print"])),
)


def op_counts_with(found):
    unique = {replace(row, count=0, size_bytes=0): row for row in found}
    return OpCounts(case_id="step.net", isa_class="avx2", torch="2.13.0", rows=sorted_rows(unique.values()))


op_counts = st.lists(rows, max_size=25).map(op_counts_with)


@st.composite
def alike(draw):
    """Two op counts that share most rows, as those of two revisions do."""
    shared = draw(st.lists(rows, max_size=15))
    return tuple(op_counts_with([*shared, *draw(st.lists(rows, max_size=8))]) for _ in range(2))


@given(op_counts)
def test_op_counts_compared_with_itself_has_no_change(counts):
    assert compare_op_counts(counts, counts) == ()


@given(alike())
@settings(max_examples=300)
def test_exchanging_op_counts_exchanges_the_counts_and_nothing_else(pair):
    there = Counter((c.rule, c.phase, c.module, c.before, c.after) for c in compare_op_counts(*pair))
    back = Counter((c.rule, c.phase, c.module, c.after, c.before) for c in compare_op_counts(*reversed(pair)))
    assert there == back


@given(alike())
@settings(max_examples=300)
def test_every_row_that_differs_is_covered_and_nothing_else_is(pair):
    covered = frozenset().union(*(change.rows for change in classify(*pair)))
    assert covered == Residue(*pair).differing


@given(alike())
def test_every_change_has_a_place_and_a_headline(pair):
    for change in classify(*pair):
        found = change.record.fact
        assert found.values["places"] >= 1
        assert change.rows
        assert found.code in messages()
        headline = describe(found)
        assert headline == " ".join(headline.split())


@given(alike(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(pair, random):
    before, after = pair
    shuffled = list(after.rows)
    random.shuffle(shuffled)
    assert compare_op_counts(before, replace(after, rows=tuple(shuffled))) == compare_op_counts(before, after)


@given(st.lists(op_counts, max_size=3))
def test_what_is_written_is_read(tmp_path_factory, found):
    named = {f"step.{n}": replace(counts, case_id=f"step.{n}") for n, counts in enumerate(found)}
    path = tmp_path_factory.mktemp("censuses") / "census.json"
    save_op_counts(path, named.values())
    assert load_op_counts(path) == named


@given(op_counts, st.randoms(use_true_random=False))
def test_the_text_does_not_depend_on_the_order_of_rows(counts, random):
    shuffled = list(counts.rows)
    random.shuffle(shuffled)
    assert op_counts_text([replace(counts, rows=tuple(shuffled))]) == op_counts_text([counts])
