"""Profiled arms with known truth: a network's ops, what of them changes, and the noise that real profiles have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perfguard.profile.op_times.arm_profile import ArmProfile, EventCost
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.profile.op_times.overhead import COLD_AFTER_S
from perfguard.records.steps.ops import PYTHON_OP, OpKey, StepPhase
from tests.changed_values import replace

FORWARD, BACKWARD = StepPhase.FORWARD, StepPhase.BACKWARD


def op_key(op, module="Net.conv", phase=FORWARD, *, shapes="[2,8,16,16]", dtypes="f32", layouts="channels_last"):
    """A key that is spelled out only where it matters."""
    return OpKey(phase=phase, module=module, op=op, shapes=shapes, dtypes=dtypes, layouts=layouts)


def python_key(module="Net.conv", phase=FORWARD):
    """The time in no op of a place."""
    return op_key(PYTHON_OP, module, phase, shapes="", dtypes="", layouts="")


@dataclass(frozen=True, slots=True)
class Op:
    """What an op truly costs in a step."""

    calls: int
    self_s: float


@dataclass(frozen=True, slots=True)
class Arm:
    """What an arm truly executes."""

    ops: Mapping[OpKey, Op]
    implementations: Mapping[OpKey, tuple[str, ...]] = field(default_factory=dict)

    @property
    def step_s(self):
        return sum(op.self_s for op in self.ops.values())

    def with_ops(self, changed):
        """The same with other or further ops; None takes one away."""
        ops = {key: op for key, op in {**self.ops, **changed}.items() if op is not None}
        return replace(self, ops=ops)


@dataclass(frozen=True, slots=True)
class Noise:
    """What disturbs a profile. SDs are relative."""

    processes: int = 4
    steps: int = 6
    """In each process; as many again run without the profiler, in turns with these."""
    drift_sd: float = 0.03
    """Of the machine's speed from step to step, a random walk that both arms share."""
    process_sd: float = 0.01
    """Of a process as a whole."""
    kernel_sd: float = 0.01
    """Of all calls of one op in one process: they run the same code, which lies where it lies."""
    layout_sd: tuple[float, float] = (0.01, 0.03)
    """Of an op in one process: drawn for each op between these."""
    bimodal: float = 0.1
    """Part of the ops that are 8 % slower in every fifth process, by luck."""
    step_sd: float = 0.04
    """Of an op in one step."""
    burst: float = 0.03
    """Part of the steps in which one op takes a fifth of a step longer."""
    idle_ratio: float = 0.02
    event_s: float = 0.5e-6
    """What the profiler costs for an event."""
    warm_ratio: float = 0.7
    """Part of that which is measured on empty events."""
    own_share: float = 0.5
    cold_ratio: float = 0.15
    """Part of the time that ops and places take with the profiler which is its own beside that, of at most
    `COLD_AFTER_S` of each call."""


SILENCE = Noise(
    processes=3,
    steps=2,
    drift_sd=0,
    process_sd=0,
    kernel_sd=0,
    layout_sd=(0, 0),
    bimodal=0,
    step_sd=0,
    burst=0,
    warm_ratio=1,
    cold_ratio=0,
)
"""No noise at all: what comes out is the truth."""


def profiled(baseline, candidate, noise=SILENCE, rng=None):
    """Both arms as they are measured, in interleaved steps of paired processes."""
    rng = rng or np.random.default_rng(0)
    keys = tuple(dict.fromkeys((*baseline.ops, *candidate.ops)))
    unsteady = dict(zip(keys, rng.uniform(*noise.layout_sd, len(keys)), strict=True))
    bimodal = dict(zip(keys, rng.random(len(keys)) < noise.bimodal, strict=True))
    drift = np.exp(noise.drift_sd * rng.standard_normal((noise.processes, 2 * noise.steps)).cumsum(1))
    arms = []
    for arm in (baseline, candidate):
        luck = _luck([(key.op, unsteady[key], bimodal[key]) for key in arm.ops], noise, rng)
        arms.append(_measured(arm, noise, rng, luck[:, np.newaxis] * drift[:, :, np.newaxis]))
    return tuple(arms)


def _luck(ops, noise, rng):
    """How much slower each op is in each process, shape (processes, ops)."""
    names, unsteady, bimodal = map(np.array, zip(*ops, strict=True))
    shape = (noise.processes, names.size)
    kernels, kernel = np.unique(names, return_inverse=True)
    luck = unsteady * rng.standard_normal(shape) + 0.08 * (bimodal & (rng.random(shape) < 0.2))
    luck += noise.process_sd * rng.standard_normal((noise.processes, 1))
    luck += noise.kernel_sd * rng.standard_normal((noise.processes, kernels.size))[:, kernel]
    return np.exp(luck)


def _measured(arm, noise, rng, slowness):
    """One arm whose steps take turns: with the profiler, without it."""
    keys = tuple(arm.ops)
    self_s, calls = (np.array([getattr(op, name) for op in arm.ops.values()]) for name in ("self_s", "calls"))
    shape = (noise.processes, 2 * noise.steps, len(keys))
    times = self_s * slowness * np.exp(noise.step_sd * rng.standard_normal(shape))
    hit = np.nonzero(rng.random(shape[:2]) < noise.burst)
    times[(*hit, rng.choice(len(keys), size=hit[0].size, p=self_s / self_s.sum()))] += 0.2 * self_s.sum()
    bare_s = times[:, 1::2].sum(axis=2).ravel()
    charged = _charged(keys, calls, noise.own_share)
    is_place = np.array([key.op == PYTHON_OP for key in keys])
    children = children_of(keys, calls, is_place.sum())
    pieces = np.where(is_place, children + 1, calls)
    cooling = np.minimum(times[:, ::2] / (1 - noise.cold_ratio), COLD_AFTER_S * pieces)
    traced = (times[:, ::2] + noise.cold_ratio * cooling + noise.event_s * charged).reshape(-1, len(keys))
    process = np.arange(noise.processes).repeat(noise.steps)
    return ArmProfile(
        profile=OpProfile(
            keys=keys,
            calls=np.tile(calls, (process.size, 1)),
            module_calls=np.zeros((process.size, len(keys)), dtype=int),
            child_events=np.tile(children, (process.size, 1)),
            self_s=traced,
            wall_s=traced.sum(axis=1),
            process=process,
            sources={key: f"train.py:{column}" for column, key in enumerate(keys)},
        ),
        bare_s=bare_s,
        bare_thread_s=bare_s * (1 - noise.idle_ratio),
        bare_process=process,
        implementations=arm.implementations,
        event_cost=EventCost(
            event_s=noise.warm_ratio * noise.event_s,
            module_s=noise.warm_ratio * noise.event_s,
            own_share=noise.own_share,
        ),
    )


def _charged(keys, calls, own_share):
    """Events whose cost each key's time contains: one for each call, and one annotation a place."""
    charged = np.zeros(len(keys))
    places = {(key.phase, key.module): column for column, key in enumerate(keys) if key.op == PYTHON_OP}
    for column, key in enumerate(keys):
        if key.op == PYTHON_OP:
            charged[column] += 1
        else:
            charged[column] += own_share * calls[column]
            charged[places.get((key.phase, key.module), column)] += (1 - own_share) * calls[column]
    return charged


def children_of(keys, calls, annotations):
    """Events directly in each key: ops in the nearest place above, annotations in places as the ops are."""
    children = np.zeros(len(keys))
    places = {(key.phase, key.module): column for column, key in enumerate(keys) if key.op == PYTHON_OP}
    for column, (key, count) in enumerate(zip(keys, calls, strict=True)):
        if key.op == PYTHON_OP:
            continue
        module = key.module
        while module and (key.phase, module) not in places:
            module = module.rpartition(".")[0]
        children[places.get((key.phase, module), column)] += count
    inside = children[list(places.values())]
    share = inside / inside.sum() if inside.sum() else 1 / max(1, len(places))
    children[list(places.values())] += annotations * share
    return children


def network(blocks=24, step_s=40e-3):
    """A convolutional network in training with a fused optimizer: some 20 ops a block, the later ones the smaller."""
    ops = {}
    for block in range(blocks):
        weight = 0.93**block
        for name, phase, module, calls, cost in _BLOCK:
            path = f"ResNet.layer{1 + 4 * block // blocks}.{block}.{module}"
            ops[op_key(name, path, phase, shapes=f"[8,{64 + block},28,28]")] = Op(
                calls, cost * 1e-6 * (weight if cost > 10 else 1)
            )
        for module in ("conv", "bn", "relu"):
            for phase in (FORWARD, BACKWARD):
                ops[python_key(f"ResNet.layer{1 + 4 * block // blocks}.{block}.{module}", phase)] = Op(1, 9e-6)
    ops[op_key("aten::cross_entropy_loss", "CrossEntropyLoss", StepPhase.LOSS)] = Op(1, 30e-6)
    ops[python_key("Adam", StepPhase.OPTIMIZER)] = Op(1, 100e-6)
    ops[fused_adam()] = Op(1, 2500e-6)
    scale = step_s / sum(op.self_s for op in ops.values())
    ops = {key: replace(op, self_s=op.self_s * scale) for key, op in ops.items()}
    kernels = {
        key: ("brg_conv:avx512_core",) for key in ops if key.op in {"aten::mkldnn_convolution", CONVOLUTION_BACKWARD}
    }
    return Arm(ops, kernels)


CONVOLUTION = "aten::mkldnn_convolution"
CONVOLUTION_BACKWARD = "aten::convolution_backward"
_BLOCK = (
    ("aten::conv2d", FORWARD, "conv", 1, 2),
    ("aten::convolution", FORWARD, "conv", 1, 2),
    ("aten::_convolution", FORWARD, "conv", 1, 3),
    (CONVOLUTION, FORWARD, "conv", 1, 400),
    (CONVOLUTION_BACKWARD, BACKWARD, "conv", 1, 800),
    ("aten::batch_norm", FORWARD, "bn", 1, 2),
    ("aten::native_batch_norm", FORWARD, "bn", 1, 120),
    ("aten::add_", FORWARD, "bn", 1, 5),
    ("aten::native_batch_norm_backward", BACKWARD, "bn", 1, 180),
    ("aten::relu", FORWARD, "relu", 1, 2),
    ("aten::clamp_min", FORWARD, "relu", 1, 60),
    ("aten::threshold_backward", BACKWARD, "relu", 1, 70),
)


def fused_adam():
    """The optimizer's one op."""
    return op_key(
        "aten::_fused_adam_", "Adam", StepPhase.OPTIMIZER, shapes="{62:11689512}", dtypes="list", layouts="list"
    )
