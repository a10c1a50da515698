from __future__ import annotations

from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.records.facts import Severity
from tests.op_count_rows import (
    ADAM,
    BACKWARD,
    BRGEMM,
    CONV_OPS,
    FORWARD,
    LOAD,
    NCHW,
    NHWC,
    NHWC_BF16,
    OPTIMIZER,
    allocation,
    changes,
    conv,
    only,
    op,
    ops,
    reorder,
    said,
    told,
    where,
)

LAYER3 = "ResNet.layer3.0.conv1"
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


# Implementations


def test_a_drop_to_the_reference_kernel_is_told_with_both_choices():
    change = only([conv(BRGEMM, 52)], [conv("ref:any", 52)])
    assert (change.rule, change.before, change.after) == ("implementation", 52, 52)
    assert (change.fact.code, change.fact.severity) == ("implementation.changed", Severity.GRAVE)
    assert said(change) == {"primitive": "convolution", "lost": BRGEMM, "gained": "ref:any", "calls": 52}
    assert where(change) == (("forward",), "Net.body", 1)


def test_a_capped_instruction_set_is_one_change_for_each_primitive():
    def step(isa):
        modules = ("Net.layer1.0", "Net.layer2.0")
        return [
            *(conv(f"brg_conv_fwd:{isa}", 3, module=module) for module in modules),
            *(conv(f"brg_conv_bwd_d:{isa}", 2, module=module, phase=BACKWARD) for module in modules),
            conv(f"brg_matmul:{isa}", 1, primitive="matmul", direction="", problem="2x3:3x4"),
        ]

    convolutions, products = changes(step("avx512_core"), step("avx2"))
    choice = {"lost": "brg_conv_fwd:avx512_core", "gained": "brg_conv_fwd:avx2"}
    assert said(convolutions) == {"primitive": "convolution", **choice, "others": 1, "calls": 10}
    assert where(convolutions) == (("forward", "backward"), "Net", 2)
    assert (said(products)["primitive"], said(products)["calls"]) == ("matmul", 1)


def test_another_spelling_of_an_instruction_set_is_no_change():
    assert changes([conv("brg_conv_fwd:avx512_core_fp16")], [conv("brg_conv_fwd:avx10_1_512")]) == ()


def test_a_spelling_of_another_version_does_not_hide_a_lower_instruction_set():
    change = only([conv("brg_conv_fwd:avx10_1_512")], [conv("brg_conv_fwd:avx512_core_bf16")])
    assert (said(change)["lost"], said(change)["gained"]) == ("brg_conv_fwd:avx10_1_512", BRGEMM)


def test_a_choice_with_two_spellings_is_named_by_the_first_in_the_alphabet():
    first, second = "brg_conv_fwd:avx10_1_512", "brg_conv_fwd:avx512_core_fp16"
    before, after = [conv(second, 2)], [conv(first), conv("ref:any")]
    assert said(only(before, after))["lost"] == said(only(after, before))["gained"] == first


def test_another_choice_for_another_problem_is_still_another_choice():
    change = only([conv(BRGEMM, problem="mb2_ic64")], [conv("ref:any", problem="mb4_ic64")])
    assert change.rule == "implementation"


def test_other_attributes_are_told_where_the_choice_is_the_same():
    change = only([conv(BRGEMM)], [conv(BRGEMM, attributes="attr-fpmath:bf16")])
    assert (said(change)["lost"], said(change)["gained"]) == ("no attributes", "attr-fpmath:bf16")


def test_a_product_that_leaves_onednn_without_a_change_of_its_op_is_named():
    bmm = op("bmm", 12, module="Bert.attention")
    product = {"primitive": "matmul", "direction": "", "problem": "12x10x64:12x64x10", "module": "Bert.attention"}
    change = only([bmm, conv("brg_matmul:avx512_core", 12, **product)], [bmm])
    assert (change.rule, change.before, change.after) == ("implementation", 12, 0)
    assert (change.fact.code, change.fact.severity) == ("library.changed", Severity.GRAVE)
    assert said(change) == {"lost": "matmul brg_matmul:avx512_core", "gained": NO_LIBRARY, "calls": 12}
    assert where(change) == (("forward",), "Bert.attention", 1)


def test_a_product_that_goes_to_mkl_is_named_so():
    linear = op("linear", 4)
    here = conv("brg_matmul:avx512_core", 4, primitive="matmul", direction="", problem="2x3:3x4")
    there = conv("", 4, primitive="sgemm", direction="", problem="N,N,2,3,4", memory="")
    change = only([linear, here], [linear, there])
    assert said(change) == {"lost": "matmul brg_matmul:avx512_core", "gained": "sgemm of MKL", "calls": 4}


def test_a_convolution_that_leaves_onednn_is_one_change_with_its_backward():
    before = [
        *ops(f"{CONV_OPS} empty", 53, dtypes="bf16"),
        op("convolution_backward", 53, phase=BACKWARD),
        conv(BRGEMM, 53),
        conv(BRGEMM, 53, phase=BACKWARD),
        reorder(7),
    ]
    after = [
        *ops("conv2d convolution _convolution thnn_conv2d _slow_conv2d_forward", 53, dtypes="bf16"),
        op("convolution_backward", 53, phase=BACKWARD),
        *ops("_slow_conv2d_backward sum resize_as_", 53, phase=BACKWARD),
        conv("", 53, primitive="sgemm", direction="", memory=""),
    ]
    change = only(before, after)
    assert (change.rule, change.fact.code) == ("implementation", "convolution.changed")
    assert said(change) == {"lost": ("mkldnn_convolution",), "gained": ("thnn_conv2d",), "calls": 53}
    assert where(change) == (("forward", "backward"), "Net.body", 1)


# Fusion


def test_an_optimizer_that_is_no_longer_fused_is_one_change():
    before = [op("_fused_adam_", shapes="{62:11689512}", **ADAM), *ops("empty to copy_", 3, **ADAM)]
    after = [
        op("mul_", 620, **ADAM),
        *ops("addcdiv_ addcmul_", 310, **ADAM),
        *ops("empty view", 62, **ADAM),
        op("copy_", 5, **ADAM),
    ]
    change = only(before, after)
    assert (change.rule, change.phase, change.module, change.before, change.after) == (
        "fusion",
        OPTIMIZER,
        "Adam",
        1,
        1240,
    )
    assert (change.fact.code, change.fact.subject.op) == ("optimizer.unfused", "Adam")
    assert said(change) == {"lost": ("_fused_adam_",), "gained": ("mul_", "addcdiv_", "addcmul_")}


def test_foreach_ops_are_told_apart_from_fused_and_from_single_tensors():
    foreach, single = [op("_foreach_mul_", 4, **ADAM), op("mul_", 8, **ADAM)], [op("mul_", 8, **ADAM)]
    fused = [op("_fused_adam_", **ADAM)]
    found = [only(fused, foreach), only(foreach, single), only(single, fused)]
    assert [change.fact.code for change in found] == ["optimizer.unfused", "optimizer.changed", "optimizer.fused"]
    assert [(change.before, change.after) for change in found] == [(1, 4), (4, 8), (8, 1)]
    assert said(found[1]) == {"lost": ("_foreach_mul_",), "gained": ("mul_",)}


def test_a_second_optimizer_is_judged_for_itself():
    other = op("_fused_sgd_", module="SGD", phase=OPTIMIZER)
    assert only([op("_fused_adam_", **ADAM), other], [op("mul_", 9, **ADAM), other]).module == "Adam"


def test_attention_in_pieces_is_one_change_forward_and_backward():
    place = {"module": "Bert.layer.0.attention"}
    back = {"phase": BACKWARD, **place}
    before = [
        op("scaled_dot_product_attention", 12, **place),
        op(FLASH, 12, **place),
        op(f"{FLASH}_backward", 12, **back),
    ]
    after = [
        op("scaled_dot_product_attention", 12, **place),
        op("_scaled_dot_product_attention_math", 12, **place),
        op("matmul", 24, **place),
        *ops("bmm mul", 24, **place),
        *ops("softmax _softmax", 12, **place),
        *ops("clone copy_ expand", 36, **place),
        *ops("bmm mul", 48, **back),
        op("_softmax_backward_data", 12, **back),
    ]
    change = only(before, after)
    assert (change.rule, change.fact.code) == ("fusion", "attention.unfused")
    assert said(change) == {"lost": (FLASH,), "gained": ("_scaled_dot_product_attention_math",)}
    assert where(change) == (("forward", "backward"), "Bert.layer.*.attention", 1)


def test_a_norm_that_becomes_one_op_is_an_improvement_told_the_other_way_round():
    pieces = [*ops("mul add rsqrt", 53)]
    fused = ops("batch_norm _batch_norm_impl_index native_batch_norm", 53)
    for change, code in ((only(pieces, fused), "norm.fused"), (only(fused, pieces), "norm.unfused")):
        assert change.fact.code == code
        assert set(said(change).values()) == {("batch_norm",), ("add", "mul", "rsqrt")}
        assert {change.before, change.after} == {159, 53}
    assert said(only(fused, pieces))["lost"] == ("batch_norm",)


def test_a_norm_that_gave_way_to_code_in_the_module_around_it_is_one_change():
    norm, back = {"module": "Net.layer1.0.bn"}, {"phase": BACKWARD}
    before = [*ops("batch_norm native_batch_norm", 2, **norm), op("native_batch_norm_backward", 2, **norm, **back)]
    around = {"module": "Net.layer1.0"}
    after = [*ops("sub mul rsqrt mean", 2, **around), *ops("mul div neg sum", 2, **around, **back)]
    change = only(before, after)
    assert (change.fact.code, change.module) == ("norm.unfused", "Net.layer1.*")
    assert said(change) == {"lost": ("batch_norm",), "gained": ("mean", "mul", "rsqrt", "sub")}
    assert where(change)[0] == ("forward", "backward")


def test_an_optimizer_of_other_parameters_is_one_change():
    def step(tensors, elements):
        sizes = {"shapes": f"{{{tensors}:{elements}}} {{{tensors}:{elements}}}", "dtypes": "list list"}
        return [op("_fused_adam_", **sizes, **ADAM), op("_foreach_add_", **sizes, **ADAM), op("to", tensors, **ADAM)]

    change = only(step(62, 11_689_512), step(60, 11_679_912))
    assert (change.rule, change.before, change.after) == ("shapes", 62, 60)
    assert (change.fact.code, change.fact.subject.op) == ("optimizer.parameters_changed", "Adam")
    assert said(change) == {"elements_before": 11_689_512, "elements_after": 11_679_912}


# Reorders and copies


def test_more_reorders_are_told_with_place_layouts_and_bytes():
    place = {"phase": BACKWARD, "module": LAYER3}
    change = only([reorder(1, **place)], [reorder(3, **place)])
    assert (change.rule, change.before, change.after) == ("reorders", 1, 3)
    assert change.fact.code == "reorders.added"
    assert said(change) == {"number": 2, "layouts": ("abcd → aBcd16b",), "written_bytes": 2 * 2 * 64 * 56 * 56 * 4}
    assert where(change) == (("backward",), "ResNet.layer3.*.conv1", 1)


def test_reorders_of_one_stage_are_one_change_at_the_stage():
    before = [conv(BRGEMM, module=module) for module in ("ResNet.layer3.0.conv1", "ResNet.layer3.0.conv2")]
    after = [*before, *(reorder(module=one.module) for one in before)]
    change = only(before, after)
    assert (change.fact.code, change.module, said(change)["number"]) == ("reorders.added", "ResNet.layer3.*", 2)
    assert where(change) == (("forward",), "ResNet.layer3.*", 2)


def test_more_here_and_fewer_there_do_not_cancel():
    before, after = reorder(module="Net.a"), reorder(module="Net.b", problem="2x8x8x8")
    found = changes([before], [after])
    assert [change.after - change.before for change in found] == [1, -1]
    assert [change.fact.code for change in found] == ["reorders.added", "reorders.removed"]


def test_as_many_reorders_between_other_layouts_are_told_as_such():
    other = reorder(4, memory=NHWC)
    change = only([reorder(4)], [other])
    assert (change.fact.code, said(change)) == ("reorders.changed", {"number": 4})


def test_reorders_between_other_layouts_belong_to_the_other_implementation_at_their_place():
    change = only([reorder(4), conv(BRGEMM)], [reorder(4, memory=NHWC), conv("jit:avx2")])
    assert change.rule == "implementation"


def test_an_added_contiguous_is_one_copy_whatever_it_calls():
    before = ops("relu")
    after = [*before, *ops("contiguous clone empty_like copy_", dtypes="bf16", layouts="channels_last")]
    change = only(before, after)
    assert (change.rule, change.before, change.after) == ("copies", 0, 1)
    assert change.fact.code == "copies.added"
    assert said(change) == {"number": 1, "by": "contiguous", "tensor": "bf16 [2,64,56,56]"}


# dtype, layout, shapes


def test_values_that_python_reads_one_by_one_are_named_with_the_views_and_the_copy_beside_them():
    """`torch.tensor([[int(t) for t in row] for row in tokens])` in place of `tokens.clone()`."""
    there = {"phase": LOAD, "module": "", "dtypes": "i64"}
    reading = ops("item _local_scalar_dense", 256, shapes="[]", **there)
    views = ops("select as_strided", 264, shapes="[32]", **there)
    change = only([], [*reading, *views, op("to", shapes="[8,32]", **there)])
    assert (change.fact.code, said(change)["ops"], change.after) == ("ops.added", ("item",), 256)


def test_ops_in_a_wider_dtype_are_one_change_with_the_casts_that_went():
    before = [
        *ops("linear addmm", 24, dtypes="bf16 bf16"),
        *ops("to _to_copy copy_", 72, dtypes="bf16 f32"),
        op("mm", 48, dtypes="bf16 bf16", phase=BACKWARD),
        conv("brg_matmul:avx512_core_bf16", 24, primitive="matmul", problem="2x3:3x4", memory=NHWC_BF16),
    ]
    after = [
        *ops("linear addmm", 24, dtypes="f32 f32"),
        op("mm", 48, dtypes="f32 f32", phase=BACKWARD),
        conv("", 24, primitive="sgemm", direction="", problem="N,N,2,3,4", memory=""),
    ]
    change = only(before, after)
    assert change.fact.code == "dtype.changed"
    affected = {"affected_ops": 72, "ops": ("linear", "mm")}
    assert said(change) == {"lost": "bf16", "gained": "f32", **affected, "fewer_casts": 72}


def test_a_wrapper_that_autocast_calls_once_more_computes_nothing_more():
    before = [op("linear", 4), op("addmm", 4)]
    after = [
        op("linear", 8, dtypes="bf16"),
        op("addmm", 4, dtypes="bf16"),
        *ops("to _to_copy copy_", 8, dtypes="f32 bf16"),
    ]
    change = only(before, after)
    affected = {"affected_ops": 4, "ops": ("linear",)}
    assert said(change) == {"lost": "f32", "gained": "bf16", **affected, "extra_casts": 8}


def test_a_narrower_kernel_that_follows_from_the_dtype_is_not_told_apart():
    before = [op("conv2d", dtypes="bf16"), conv("brg_conv_fwd:avx512_core_bf16", memory=NHWC_BF16)]
    after = [op("conv2d", dtypes="f32"), conv("brg_conv_fwd:avx512_core")]
    assert only(before, after).rule == "dtype"


def test_a_lost_memory_format_is_one_change_with_its_reorders_and_copies():
    back = {"phase": BACKWARD}
    before = [
        *ops(CONV_OPS, 4, layouts="channels_last channels_last"),
        op("relu", 4, layouts="channels_last"),
        op("threshold_backward", 4, layouts="channels_last", **back),
        conv(BRGEMM, 4),
        *ops("contiguous clone copy_", phase=LOAD, module=""),
    ]
    after = [
        *ops(CONV_OPS, 4, layouts="contiguous channels_last"),
        op("relu", 4),
        op("threshold_backward", 4, **back),
        conv("jit:avx512_core", 4, memory=NCHW),
        reorder(8),
        *ops("contiguous clone copy_", 2),
    ]
    change = only(before, after)
    assert (change.rule, change.phase, change.module, change.before, change.after) == (
        "layout",
        FORWARD,
        "Net.body",
        12,
        0,
    )
    assert change.fact.code == "layout.lost"
    assert said(change) == {
        "lost": "channels_last",
        "gained": "contiguous",
        "affected_ops": 12,
        "ops": ("conv2d", "relu", "threshold_backward"),
        "extra_reorders": 8,
        "extra_copies": 1,
        "kernel_lost": BRGEMM,
        "kernel_gained": "jit:avx512_core",
    }


def test_a_fallback_is_told_even_where_the_memory_format_is_lost():
    before = [op("conv2d", layouts="channels_last"), conv(BRGEMM)]
    after = [op("conv2d"), conv("ref:any", memory=NCHW)]
    assert [change.rule for change in changes(before, after)] == ["implementation", "layout"]


def test_other_layouts_are_told_with_what_they_turned_into():
    change = only([op("add", 3)], [op("add", 3, layouts="strided")])
    assert change.fact.code == "layout.changed"
    assert said(change) == {"lost": "contiguous", "gained": "strided", "affected_ops": 3, "ops": ("add",)}


def test_ops_that_lost_calls_became_those_that_come_first_in_the_order_of_their_tensors():
    shapes = changes(ops("relu", shapes="[2]"), [*ops("relu", shapes="[3]"), *ops("relu", shapes="[4]")])[0]
    assert said(shapes)["examples"] == ("relu [2] → [3]",)


def test_a_larger_batch_is_one_change():
    def step(batch):
        shape = f"[{batch},64,56,56]"
        return [
            *ops(CONV_OPS, 9, shapes=f"{shape} [64,64,3,3]"),
            op("relu", 8, shapes=shape),
            op("convolution_backward", 9, shapes=shape, phase=BACKWARD),
            conv(BRGEMM, 9, problem=f"mb{batch}_ic64"),
            allocation(20, batch * 1_000_000),
        ]

    assert told(step(32), step(64)) == [("shapes", "shapes.changed"), ("allocations", "allocations.changed")]
    shapes, allocations = map(said, changes(step(32), step(64)))
    assert shapes["affected_ops"] == 26
    assert shapes["examples"] == ("conv2d [32,64,56,56] → [64,64,56,56]", "relu [32,64,56,56] → [64,64,56,56]")
    sizes = {"size_before_bytes": 640_000_000, "size_after_bytes": 1_280_000_000, "more_bytes": 640_000_000}
    assert allocations == {**{name: size // 20 for name, size in sizes.items()}, "is_elsewhere": False}
