"""What the rules know of torch's ops by name: who calls whom, what copies, what is fused out of what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import pairwise

from msgspec import Struct

from perfguard.profile.trace.op_groups import Group, group_of

COPIES = ("contiguous", "reshape", "to", "clone", "_to_copy", "copy_")
"""Ops that copy a tensor as it is, the outermost first; `reshape` only does where a view is impossible."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ATTENDANTS = _names(
    """
    zero_ zeros zeros_like new_zeros fill_ ones ones_like new_ones full full_like new_full scalar_tensor resize_as_
    _nnpack_available
    """
)
"""Ops beside views that come with others: they fill new tensors or ask what is possible."""

READS = _names("item _local_scalar_dense is_nonzero")
"""Ops that hand a tensor's value to Python: each is a call that somebody wrote, and in a loop a slow one."""

CASTS = frozenset({"to", "_to_copy", "copy_", "type_as"})
"""Copies by which autocast and `.to(dtype)` change a dtype."""

REORDER = "reorder"  # oneDNN's primitive that copies a tensor into another layout

_CALLS: dict[str, set[str]] = defaultdict(set)
"""Ops that an op calls directly: a wrapper stands for what it calls."""
for _chain in """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d > convolution
    convolution > _convolution mkldnn_convolution
    _convolution > mkldnn_convolution thnn_conv2d _slow_conv2d_forward slow_conv3d_forward
    thnn_conv2d > _slow_conv2d_forward
    slow_conv3d > slow_conv3d_forward
    convolution_backward > _slow_conv2d_backward
    linear > addmm mm
    matmul > mm bmm baddbmm
    scaled_dot_product_attention > _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math
    _scaled_dot_product_attention_math > matmul softmax mul
    batch_norm > _batch_norm_impl_index native_batch_norm
    _batch_norm_impl_index > native_batch_norm
    layer_norm > native_layer_norm
    group_norm > native_group_norm
    dropout > native_dropout bernoulli_
    relu > clamp_min
    relu_ > clamp_min_
    max_pool2d > max_pool2d_with_indices
    adaptive_avg_pool2d > _adaptive_avg_pool2d mean
    softmax > _softmax
    cross_entropy_loss > log_softmax nll_loss_nd
    log_softmax > _log_softmax
    nll_loss_nd > nll_loss > nll_loss_forward
    embedding > index_select
    embedding_bag > _embedding_bag
    lstm > mkldnn_rnn_layer
    zeros zeros_like new_zeros > zero_
    zero_ ones full ones_like full_like > fill_
    norm > linalg_vector_norm
    is_nonzero > item > _local_scalar_dense
    contiguous reshape > clone
    type_as > to > _to_copy
    clone _to_copy > copy_
    """.strip().splitlines():
    for _callers, _callees in pairwise(map(_names, _chain.split(">"))):
        for _caller in _callers:
            _CALLS[_caller] |= _callees


class Fusion(Struct, frozen=True):
    """Work that one op does at once or many do piece by piece."""

    kind: str  # First part of the codes of its changes: `attention.unfused`
    fused: frozenset[str]  # Names of the op, with wrappers that exist only around it
    core: Group  # Group of the ops without which nothing was taken to pieces
    groups: frozenset[Group]  # Groups of the ops that do the same in pieces


FUSIONS = tuple(
    Fusion(kind, _names(names), core, frozenset({core, Group.ELEMENT_WISE, Group.REDUCTION, *groups}))
    for kind, core, groups, names in (
        (
            "attention",
            Group.MATMUL,
            (Group.SOFTMAX, Group.ATTENTION),
            """
            _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
            _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_fused_attention_overrideable_backward
            """,
        ),
        (
            "norm",
            Group.ELEMENT_WISE,
            (),
            """
            batch_norm _batch_norm_impl_index native_batch_norm _native_batch_norm_legit
            _native_batch_norm_legit_no_training native_batch_norm_backward
            """,
        ),
        ("norm", Group.ELEMENT_WISE, (), "layer_norm native_layer_norm native_layer_norm_backward"),
        ("norm", Group.ELEMENT_WISE, (), "group_norm native_group_norm native_group_norm_backward"),
        ("norm", Group.ELEMENT_WISE, (), "rms_norm _fused_rms_norm _fused_rms_norm_backward"),
        ("recurrent", Group.MATMUL, (), "mkldnn_rnn_layer mkldnn_rnn_layer_backward _thnn_fused_lstm_cell"),
        ("activation", Group.ELEMENT_WISE, (), "gelu gelu_backward silu silu_ silu_backward"),
        (
            "loss",
            Group.ELEMENT_WISE,
            (Group.LOSS,),
            "cross_entropy_loss log_softmax _log_softmax _log_softmax_backward_data",
        ),
        ("linear", Group.MATMUL, (), "addmm baddbmm"),
    )
)
"""Fused ops of torch on CPUs whose loss is a known cause of slow steps."""

CONVOLUTIONS = _names(
    """
    mkldnn_convolution _nnpack_spatial_convolution thnn_conv2d _slow_conv2d_forward _slow_conv2d_backward slow_conv3d
    slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d
    """
)
"""Ops that each are one way for torch to compute a convolution."""


def short(op: str) -> str:
    """`mul_` for `aten::mul_`; other libraries keep their name."""
    return op.removeprefix("aten::")


def is_copy(op: str) -> bool:
    """Whether an op copies a tensor as it is. `reshape` is not counted: most of them are views."""
    return op.startswith("aten::") and short(op) in COPIES and op != "aten::reshape"


def is_minor(op: str) -> bool:
    """Whether an op only makes, fills or describes tensors: such ops follow others and are no cause."""
    return short(op) not in READS and (group_of(op) is Group.VIEWS or short(op) in ATTENDANTS)


def computes(op: str) -> bool:
    """Whether an op does more than make, describe and copy tensors."""
    return not is_minor(op) and not is_copy(op)


def callees(op: str) -> AbstractSet[str]:
    """Short names of the ops that an op is known to call; empty where none are."""
    return _CALLS.get(short(op), frozenset())


def is_piece_of(op: str, fusion: Fusion) -> bool:
    """Whether an op may be a piece of what a fused op does at once."""
    return short(op) not in fusion.fused and group_of(op) in fusion.groups


def leading(ops: Iterable[str]) -> list[str]:
    """The ops to name, sorted: neither minor nor called by another of them; all of them where none is left."""
    names = set(ops)
    called = {callee for op in names for callee in callees(op)}
    return sorted([op for op in names if not is_minor(op) and short(op) not in called] or names)
