"""How much a call has to do at the least."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perfguard.profile.projection.recorded_arguments import ELEMENT_BYTES, FLOATING, Arguments, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The least that one call of a problem has to do."""

    flops: float | None
    """Floating-point operations, a multiplication and its addition being two; None where only bytes are counted."""
    size_bytes: float
    """Bytes of what it reads and of what it writes, each once, as if caches held everything between."""
    dtype: str
    """What it computes in: `bf16`."""
    assumed: tuple[str, ...] = ()
    """What is not recorded and had to be guessed."""


Formula = Callable[[Arguments], Work]
"""The work of a call by its arguments; raises UnknownWorkError where these do not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A tensor that a call makes."""

    elements: int
    """Elements."""
    dtype: str
    """Their type."""

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return self.elements * ELEMENT_BYTES[self.dtype]


def work_of_tensors(inputs: Iterable[Tensor], outputs: Iterable[Output], *, flops: float | None = None) -> Work:
    """The work of a call that reads all of some tensors and writes others; at least one of either."""
    read, written = tuple(inputs), tuple(outputs)
    dtypes = [*(tensor.dtype for tensor in read), *(output.dtype for output in written)]
    return Work(
        flops=flops,
        size_bytes=sum(tensor.size_bytes for tensor in read) + sum(output.size_bytes for output in written),
        dtype=next((dtype for dtype in dtypes if dtype in FLOATING), dtypes[0]),
    )


def like(tensor: Tensor, dtype: str | None = None) -> Output:
    """An output as large as a tensor, of its dtype or of another one."""
    return Output(elements=tensor.elements, dtype=dtype or tensor.dtype)
