"""What kind of work an op does, by its name."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from perfguard.records.steps.ops import PYTHON_OP


class Group(str, Enum):
    """Kinds of work."""

    ELEMENT_WISE = "element-wise"
    NORM = "norm"
    POOLING = "pooling"
    SOFTMAX = "softmax"
    LOSS = "loss"
    EMBEDDING = "embedding"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    RECURRENT = "recurrent"
    MATMUL = "matmul"
    LINALG = "linear algebra"
    REDUCTION = "reduction"
    INDEXING = "indexing"
    COPY = "copy"
    RANDOM = "random"
    VIEWS = "views and allocation"
    AUTOGRAD = "autograd"
    OTHER = "other"  # Of ops that no rule knows
    PYTHON = PYTHON_OP  # Of what is no op, such as an annotation


LIBRARY_GROUPS = frozenset({Group.MATMUL, Group.CONVOLUTION, Group.RECURRENT, Group.ATTENTION})
"""What torch leaves to oneDNN and MKL where it can."""
_PATTERNS = {
    Group.VIEWS: r"""
        alias | arange | as_strided | broadcast_tensors | chunk | detach | diagonal | empty | empty_like
        | empty_strided | expand | expand_as | flatten | is_nonzero | item | lift_fresh | local_scalar_dense
        | movedim | narrow | new_empty | new_empty_strided | numpy_t | permute | ravel | reshape | reshape_alias
        | resize | resize_as | resolve_conj | resolve_neg | result_type | select | set | set_data | size | slice | split
        | split_with_sizes | squeeze | stride | swapaxes | t | transpose | unbind | unflatten | unfold
        | unsafe_chunk | unsafe_split | unsafe_view | unsqueeze | view | view_as | view_as_complex
        | view_as_real""",
    Group.ELEMENT_WISE: r"""
        abs | acos | add | addcdiv | addcmul | and | asin | atan | atan2 | bitwise_(?:and|not|or|xor) | ceil
        | celu | clamp | clamp_(?:max|min) | clip | copysign | cos | cosh | digamma | div | divide | elu | eq
        | erf | erfc | erfinv | exp | exp2 | expm1 | eye | fill | floor | floor_divide | fmax | fmin | fmod
        | frac | full | full_like | ge | gelu | glu | gt | hard(?:shrink|sigmoid|swish|tanh)
        | is(?:finite|inf|nan) | le | leaky_relu | lerp | lgamma | log | log10 | log1p | log2 | log_sigmoid
        | log_sigmoid_forward | logaddexp | logical_(?:and|not|or|xor) | logit | lt | masked_fill | maximum
        | minimum | mish | mul | multiply | nan_to_num | ne | neg | negative | new_(?:full|ones|zeros) | ones
        | ones_like | or | polar | pow | prelu | prelu_kernel | reciprocal | relu | relu6 | remainder | round
        | rrelu | rrelu_with_noise | rsqrt | rsub | selu | sgn | sigmoid | sign | silu | sin | sinc | sinh
        | softplus | softshrink | sqrt | square | sub | subtract | tan | tanh | threshold | tril | triu
        | true_divide | trunc | where | xor | zero | zeros | zeros_like""",
    Group.LOSS: r".*_loss(?:_nd|2d)?(?:_forward)? | binary_cross_entropy.* | cross_entropy.* | kl_div | ctc.*",
    Group.SOFTMAX: r".*softmax.* | logsumexp",
    Group.NORM: r".*(?:batch|layer|group|instance|rms)_?norm.* | renorm",
    Group.POOLING: r".*pool(?:ing)?[123]?d?.* | upsample_.* | grid_sampler.*",
    Group.EMBEDDING: r".*embedding.*",
    Group.ATTENTION: r"scaled_dot_product.* | .*(?:flash|efficient|multi_head)_attention.*",
    Group.CONVOLUTION: r".*conv.* | im2col | col2im",
    Group.RECURRENT: r".*(?:lstm|gru|rnn).*",
    Group.MATMUL: r"""
        (?:.*_)?(?:add|badd|sadd)?b?mm(?:_activation)? | (?:add)?mv | v?dot | addr | outer | .*matmul | .*linear
        | einsum""",
    Group.LINALG: r"""
        linalg_(?!norm|vector_norm).* | (?:lu|cholesky|triangular|svd|eigh?|fft|stft|lstsq|logdet|qr)(?:_.*)?
        | inverse""",
    Group.RANDOM: r".*dropout.* | bernoulli | uniform | normal | rand.* | exponential | multinomial",
    Group.COPY: r"""
        (?:to_)?copy(?:_from)? | clone | contiguous | to | to_dense | to_mkldnn | cat | stack | repeat | tile
        | roll | flip | .*pad(?:_nd)?""",
    Group.INDEXING: r"""
        index.* | gather | scatter.* | masked_(?:select|scatter) | take.* | nonzero.* | one_hot | sort | topk
        | unique.*""",
    Group.REDUCTION: r"""
        sum | nansum | mean | prod | max | min | amax | amin | aminmax | arg(?:max|min) | all | any
        | var(?:_mean)? | std(?:_mean)? | norm | linalg_(?:vector_)?norm | cumsum | cumprod | bincount
        | count_nonzero | median""",
}
"""For whole base names; the first that fits is right."""
_RULES = tuple((group, re.compile(pattern, re.VERBOSE)) for group, pattern in _PATTERNS.items())
_AFFIXES = re.compile(r"^(?:foreach|native|mkldnn|thnn)_|_backward(?:_data|_weights?|_input|_bias)?$")
_NODE = re.compile(r".*Backward\d*")


@lru_cache(maxsize=4096)
def group_of(op: str) -> Group:
    """The kind of work of an op of a trace: `aten::add_`, `torch::autograd::AccumulateGrad`, `ConvolutionBackward0`."""
    namespace, _, name = op.rpartition("::")
    if namespace == "torch::autograd" or (not namespace and _NODE.fullmatch(name)):
        return Group.AUTOGRAD
    if not namespace:
        return Group.PYTHON
    base = base_name(op)
    return next((group for group, rule in _RULES if rule.fullmatch(base)), Group.OTHER)


def may_call_a_library(op: str) -> bool:
    """Whether oneDNN or MKL may be all that an op is about: torch's own of such kinds, and unknown ones of others."""
    group = group_of(op)
    return group in LIBRARY_GROUPS or group is Group.LINALG or (group is Group.OTHER and not op.startswith("aten::"))


def is_bookkeeping(op: str) -> bool:
    """Whether an op only makes or describes tensors: nothing is computed in it, by no library."""
    return group_of(op) is Group.VIEWS


def base_name(op: str) -> str:
    """`add` of `aten::_foreach_add_`, `softmax` of `aten::_softmax_backward_data`: what an op does, in any form."""
    base = op.rpartition("::")[2].strip("_")
    while True:
        shorter = _AFFIXES.sub("", base).strip("_")
        if shorter in {"", base}:
            return base
        base = shorter
