"""What the rules know of torch's ops by name: who calls whom, what copies, what is fused out of what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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

CASTS = frozenset({"to", "_to_copy", "copy_", "type_as"})
"""Copies by which autocast and `.to(dtype)` change a dtype."""

REORDER = "reorder"
"""oneDNN's primitive that copies a tensor into another layout."""

_CALLED_BY: Mapping[str, frozenset[str]] = {
    op: _names(callers)
    for op, callers in {
        "convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        "_convolution": "convolution",
        "mkldnn_convolution": "_convolution convolution",
        "thnn_conv2d": "_convolution",
        "_slow_conv2d_forward": "thnn_conv2d _convolution",
        "slow_conv3d_forward": "slow_conv3d _convolution",
        "_slow_conv2d_backward": "convolution_backward",
        "addmm": "linear",
        "mm": "matmul linear",
        "bmm": "matmul",
        "matmul": "_scaled_dot_product_attention_math",
        "softmax": "_scaled_dot_product_attention_math",
        "mul": "_scaled_dot_product_attention_math",
        "baddbmm": "matmul",
        "_batch_norm_impl_index": "batch_norm",
        "native_batch_norm": "_batch_norm_impl_index batch_norm",
        "native_layer_norm": "layer_norm",
        "native_group_norm": "group_norm",
        "native_dropout": "dropout",
        "bernoulli_": "dropout",
        "clamp_min": "relu",
        "clamp_min_": "relu_",
        "max_pool2d_with_indices": "max_pool2d",
        "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
        "mean": "adaptive_avg_pool2d",
        "_softmax": "softmax",
        "_log_softmax": "log_softmax",
        "log_softmax": "cross_entropy_loss",
        "nll_loss_nd": "cross_entropy_loss",
        "nll_loss": "nll_loss_nd",
        "nll_loss_forward": "nll_loss",
        "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
        "_scaled_dot_product_attention_math": "scaled_dot_product_attention",
        "index_select": "embedding",
        "_embedding_bag": "embedding_bag",
        "mkldnn_rnn_layer": "lstm",
        "zero_": "zeros zeros_like new_zeros",
        "fill_": "zero_ ones full ones_like full_like",
        "linalg_vector_norm": "norm",
        "_local_scalar_dense": "item",
        "item": "is_nonzero",
        "clone": "contiguous reshape",
        "_to_copy": "to",
        "to": "type_as",
        "copy_": "clone _to_copy",
    }.items()
}
"""Direct callers of an op: a wrapper stands for what it calls."""
_CALLS: Mapping[str, frozenset[str]] = {
    caller: frozenset(op for op, callers in _CALLED_BY.items() if caller in callers)
    for caller in frozenset[str]().union(*_CALLED_BY.values())
}


@dataclass(frozen=True, slots=True)
class Fusion:
    """Work that one op does at once or many do piece by piece."""

    kind: str
    """First part of the codes of its changes: `attention.unfused`."""
    fused: frozenset[str]
    """Names of the op, with wrappers that exist only around it."""
    core: Group
    """Group of the ops without which nothing was taken to pieces."""
    groups: frozenset[Group]
    """Groups of the ops that do the same in pieces."""


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
    return group_of(op) is Group.VIEWS or short(op) in ATTENDANTS


def computes(op: str) -> bool:
    """Whether an op does more than make, describe and copy tensors."""
    return not is_minor(op) and not is_copy(op)


def callees(op: str) -> frozenset[str]:
    """Short names of the ops that an op is known to call; empty where none are."""
    return _CALLS.get(short(op), frozenset())


def is_piece_of(op: str, fusion: Fusion) -> bool:
    """Whether an op may be a piece of what a fused op does at once."""
    return short(op) not in fusion.fused and group_of(op) in fusion.groups


def leading(ops: Iterable[str]) -> list[str]:
    """The ops to name, sorted: neither minor nor called by another of them; all of them where none is left."""
    names = set(ops)
    shorts = {short(op) for op in names}
    major = [op for op in names if not is_minor(op) and not shorts & _CALLED_BY.get(short(op), frozenset())]
    return sorted(major or names)
