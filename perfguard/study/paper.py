"""The published figures that a study is held against; the file beside this one names the source of each."""

from __future__ import annotations

import sys
from importlib.resources import files

from msgspec import Struct

from perfguard.codec import from_builtins

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE = "profilednn.toml"


class PaperSlice(Struct, frozen=True, kw_only=True):
    """A part of a donut."""

    name: str  # oneDNN's primitive
    direction: str  # `FWD_D`, `BWD_D`, `BWD_W`, `BWD_DW`; empty where the primitive has none
    share: float  # Of the time that oneDNN reports


class PaperDonut(Struct, frozen=True, kw_only=True):
    """Fig. 2: where the time of a model's step is."""

    model: str  # Its name here
    label: str  # As the paper calls it
    slices: tuple[PaperSlice, ...]  # Largest first

    def share(self, *names: str, direction: str = "") -> float:
        """Of primitives of these names, in directions that begin like this."""
        return sum(s.share for s in self.slices if s.name in names and s.direction.startswith(direction))


class PaperTimes(Struct, frozen=True, kw_only=True):
    """Forward and backward of a kernel, over the forward of the default in float32."""

    forward: float
    backward: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.forward + self.backward


class PaperKernel(Struct, frozen=True, kw_only=True):
    """Fig. 6: one variant of the focal loss."""

    variant: str
    fp32: PaperTimes
    bf16: PaperTimes

    def times(self, dtype: str) -> PaperTimes:
        """Of one dtype."""
        return self.bf16 if dtype == "bf16" else self.fp32


class PaperCase(Struct, frozen=True, kw_only=True):
    """A case study of the paper."""

    name: str  # Its name here
    what: str  # One line
    gain: float | None = None  # How many times as fast; None where the paper gives no number


class PaperRanks(Struct, frozen=True, kw_only=True):
    """A row of table 2."""

    threads: int  # Of each rank
    ranks: tuple[int, ...]
    throughput: tuple[float, ...]  # One for each number of ranks, over the table's first cell


class Convergence(Struct, frozen=True, kw_only=True):
    """Fig. 7: how much more training a larger batch needs."""

    benchmark: str  # Of MLPerf Training
    batch: tuple[int, ...]  # Global batch sizes, ascending
    ratio: tuple[float, ...]  # Epochs or samples to converge, over those at the smallest batch


class Paper(Struct, frozen=True, kw_only=True):
    """Everything that the study compares with."""

    title: str
    source: str  # Authors and where it was published
    machine: str  # What the paper measured on
    donuts: tuple[PaperDonut, ...]
    phases: dict[str, float]  # Fig. 4: ratio by phase
    kernels: tuple[PaperKernel, ...]
    cases: tuple[PaperCase, ...]  # In the paper's order
    ranks: tuple[PaperRanks, ...]
    convergence: tuple[Convergence, ...]

    def donut(self, model: str) -> PaperDonut:
        """Of one model."""
        return next(donut for donut in self.donuts if donut.model == model)

    def kernel(self, variant: str) -> PaperKernel:
        """Of one variant."""
        return next(kernel for kernel in self.kernels if kernel.variant == variant)


def load_paper() -> Paper:
    """The figures of ProfileDNN (Fu et al., arXiv:2206.10034) as the package holds them."""
    text = files("perfguard.study").joinpath(_FILE).read_text(encoding="utf-8")
    return from_builtins(tomllib.loads(text), Paper, source=_FILE)
