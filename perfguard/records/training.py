"""Heterogeneous training: what a run is asked for, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from perfguard.errors import ConfigError
from perfguard.records.facts import Fact


class Kind(str, Enum):
    """How the workers of a group train the shared model."""

    HOGWILD = "hogwild"  # Each updates the shared model itself, without locks
    REPLICA = "replica"  # Each trains a copy on a large batch and merges it into the shared model
    STREAM = "stream"  # One process trains by torch.optim.SGD, as a program without perfguard does: a baseline
    DDP = "ddp"  # As many ranks as threads train by DistributedDataParallel over gloo, one thread each: a baseline


class Device(str, Enum):
    """What the workers of a replica group compute on."""

    AUTO = "auto"  # A GPU where there is one, else CPUs
    CPU = "cpu"
    CUDA = "cuda"
    EMULATED = "emulated"  # A CPU that stands for a faster device: it looks at one in `speed` examples


class Merge(str, Enum):
    """How a replica gets into the shared model."""

    DELTA = "delta"  # What the replica has changed is added
    OVERWRITE = "overwrite"  # The replica replaces the model, and updates made meanwhile are lost (the authors' code)


class Activation(str, Enum):
    """What follows a hidden layer."""

    RELU = "relu"
    SIGMOID = "sigmoid"


class Tail(str, Enum):
    """What the last range of an epoch is, where fewer examples are left than a batch."""

    SHORT = "short"  # What is left
    OVERLAP = "overlap"  # As long as the others, so some examples are handed out twice; as in the authors' code


class Ending(str, Enum):
    """Why a run has ended."""

    TARGET = "target"  # The loss reached the target
    EPOCHS = "epochs"  # All epochs were made
    TIME = "time"  # The time was used up
    DIVERGED = "diverged"  # The loss is not a number
    NO_WORKERS = "no workers"  # All workers were lost
    ASKED = "asked"  # The user ended it


class DataConfig(Struct, frozen=True, kw_only=True):
    """What is trained on."""

    source: str  # Name of a generated shape, `sklearn:NAME`, or a file in LIBSVM's or the extreme-classification format
    examples: int | None = None  # Use as many; None: all of a file, the reduced size of a shape
    features: int | None = None  # Of a file; None: as many as it names
    classes: int | None = None  # Likewise
    seed: int = 0  # Of generated data


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The network: a multilayer perceptron, or a module of the user's."""

    layers: int = 2  # Hidden ones
    width: int = 512  # Units of each
    activation: Activation = Activation.RELU
    factory: str | None = None  # `module:function`, called with features and classes, returns an nn.Module

    def __post_init__(self) -> None:
        if self.layers < 0 or self.width < 1:
            raise ConfigError(f"model: layers {self.layers} must be 0 or more, and width {self.width} 1 or more")


class GroupConfig(Struct, frozen=True, kw_only=True):
    """Workers that are alike."""

    kind: Kind
    batch: int  # Examples of the first request
    minimum: int | None = None  # Least that a policy may choose; None: the batch
    maximum: int | None = None  # Most, likewise
    updates: int = 1  # SGD steps that a request is split into
    workers: int | None = None  # Processes; None: one for each CPU that no other group uses
    threads: int = 1  # Of each worker
    device: Device = Device.AUTO
    speed: float = 1.0  # Of an emulated device, as a multiple of one CPU
    merge: Merge = Merge.DELTA
    is_remote: bool = False  # Whether its workers are on other hosts, where `perfguard hetero work` starts each

    def __post_init__(self) -> None:
        for name in ("batch", "updates", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: give 1 or more")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers = {self.workers}: give 1 or more, or leave it out")
        if not self.speed >= 1:
            raise ConfigError(
                f"speed = {self.speed:g}: an emulated device is at least as fast as one CPU; give 1 or more"
            )
        if self.kind is not Kind.REPLICA and self.device not in (Device.CPU, Device.AUTO):
            raise ConfigError(
                f"a {self.kind.value} group trains in shared memory, not on {self.device.value}; use kind = 'replica'"
            )
        if self.kind in (Kind.STREAM, Kind.DDP) and self.workers not in (None, 1):
            raise ConfigError(
                f"workers = {self.workers}: a {self.kind.value} group is one worker; give it more threads"
            )
        if self.is_remote and (self.kind is not Kind.REPLICA or self.merge is not Merge.DELTA):
            raise ConfigError(
                "workers on other hosts are replicas whose changes are added; use kind = 'replica', merge = 'delta'"
            )
        if self.speed != 1 and self.device is not Device.EMULATED:
            raise ConfigError("speed is of an emulated device; set device = 'emulated' as well")


class TrainingConfig(Struct, frozen=True, kw_only=True):
    """Everything that a run of heterogeneous training is asked for."""

    data: DataConfig
    groups: Mapping[str, GroupConfig]  # By name
    learning_rate: float
    model: ModelConfig = ModelConfig()
    algorithm: str = "adaptive"
    reference_batch: int | None = None  # The learning rate grows with the batch over this one; None: it does not
    epochs: int = 20
    time_s: float | None = None  # Maximum wall time, losses included
    target_loss: float | None = None  # Mean loss of an example at which training ends
    loss_batch: int = 4096  # Examples of a request whose loss is computed
    tail: Tail = Tail.SHORT
    patience_s: float = 30.0  # A worker that takes longer for a request, and ten times what it should, is late
    alpha: float = 2.0  # Adaptive: factor of one change of a batch
    beta: float = 1.0  # Adaptive: weight of an update of hogwild workers
    step: int = 32  # Additive: change of a batch, examples
    period: int = 100  # Additive: updates of all groups between changes
    seed: int = 0  # Of the model's initial weights

    def __post_init__(self) -> None:
        if not self.groups:
            raise ConfigError("no group of workers is given; add [groups.NAME]")
        if not 0 < self.learning_rate < float("inf"):
            raise ConfigError(f"learning_rate = {self.learning_rate:g}: give a number above 0")
        for name in ("epochs", "loss_batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: give 1 or more")
        if not self.patience_s > 0:
            raise ConfigError(f"patience_s = {self.patience_s:g}: give a number of seconds above 0")
        if self.time_s is not None and not self.time_s > 0:
            raise ConfigError(f"time_s = {self.time_s:g}: give a number of seconds above 0")


class WorkerPlace(Struct, frozen=True, kw_only=True):
    """One worker, and where it runs."""

    name: str
    group: str
    cpus: tuple[int, ...]  # Empty on another host


class RemoteJob(Struct, frozen=True, kw_only=True):
    """What a worker on another host gets."""

    config: TrainingConfig
    workers: tuple[str, ...]  # Names of the remote workers, in the order in which they join
    groups: tuple[str, ...]  # Their groups
    shape: tuple[int, int, int]  # Examples, features, classes: what its own copy of the data must have


class TrainingJob(Struct, frozen=True, kw_only=True):
    """What the process that trains gets from its parent."""

    config: TrainingConfig
    workers: tuple[WorkerPlace, ...]
    data_folder: str  # Where data is kept in the form that workers map
    checkpoint: str  # File that takes the state of the run
    resumes: bool = False  # Whether the run goes on from that file
    listen: str | None = None  # HOST:PORT that remote workers join
    join_s: float = 120.0  # How long they are waited for


class TrainingPlanned(Struct, frozen=True, kw_only=True):
    """Training is about to be started: what was asked for, and where its workers run."""

    config: TrainingConfig
    workers: tuple[WorkerPlace, ...]


class GroupUse(Struct, frozen=True, kw_only=True):
    """What a group of workers has done since the run began."""

    updates: int
    examples: int
    batch: int  # Of the last request
    busy_ratio: float  # Part of its workers' time that was computing, since the last of these
    worker_count: int  # Workers that are left


class TrainingUse(Struct, frozen=True, kw_only=True):
    """What the groups have done so far; about once a second."""

    at_s: float  # Since training began
    groups: Mapping[str, GroupUse]


class Counters(Struct):
    """What one worker has done since the run began; only answers that count. The coordinator counts in place."""

    updates: int = 0
    trained: int = 0  # Examples
    evaluated: int = 0  # Examples
    busy_s: float = 0.0
    waiting_s: float = 0.0
    transfer_s: float = 0.0
    training_s: float = 0.0  # Seconds of computing and copying for training; the rest of both was for losses
    ranges_returned: int = 0


class TrainingEpoch(Struct, frozen=True, kw_only=True):
    """All examples were trained on once, and the loss of the model was computed."""

    epoch: int  # 0 is the loss before any update
    at_s: float  # Since training began
    trained_s: float  # Seconds of training alone up to here, without losses
    loss_s: float  # Seconds of computing this loss
    loss: float  # Mean over all examples
    updates: Mapping[str, int]  # By group, since training began
    batches: Mapping[str, int]  # By group: examples of its last request


class GroupPace(Struct, frozen=True, kw_only=True):
    """How long the workers of a group take, as a run measured it by least squares over its ranges."""

    update_s: float  # Seconds of an update, whatever its size
    example_s: float  # Seconds of training on an example, beside that
    loss_example_s: float  # Seconds of computing an example's loss
    transfer_s: float  # Seconds of copies for a range
    latency_s: float  # Seconds of messages for a range: from the order to the report, less all of the above


class Utilisation(Struct, frozen=True, kw_only=True):
    """The busy part of each group's time, in bins of equal length."""

    bin_s: float
    groups: Mapping[str, tuple[float, ...]]  # By group: ratios, 0 to 1, in order


class TrainedOn(Struct, frozen=True, kw_only=True):
    """What a run trained, and with what."""

    examples: int
    features: int
    classes: int
    parameters: int  # Numbers in the model
    is_sparse: bool
    is_multilabel: bool
    devices: Mapping[str, str]  # By group: what it really ran on
    torch: str  # Version
    resumed_epoch: int | None = None  # Epoch that an earlier run had reached


class TrainingOutcome(Struct, frozen=True, kw_only=True):
    """How training ended."""

    ending: Ending
    at_s: float
    counters: Mapping[str, Counters]  # By worker
    utilisation: Utilisation
    paces: Mapping[str, GroupPace] = field(default_factory=dict)  # By group; those that trained
    schedule: tuple[tuple[float, str, int], ...] = ()  # Seconds, group and new batch, at each change
    detail: str = ""  # What is known of a bad end
    trained_s: float | None = None  # Seconds of training, those of the last, unfinished epoch included; None: unknown


class Training(Struct, frozen=True, kw_only=True):
    """A run of heterogeneous training; `training.json` of its folder."""

    run_id: str
    machine_id: str
    machine: str  # One line
    planned: TrainingPlanned
    trained: TrainedOn | None = None  # None where nothing could be started
    epochs: tuple[TrainingEpoch, ...] = ()
    outcome: TrainingOutcome | None = None  # None where it was cut off
    notes: tuple[Fact, ...] = ()
    reasons: tuple[Fact, ...] = ()  # Why it ended as it did
    exit_code: int = 0
