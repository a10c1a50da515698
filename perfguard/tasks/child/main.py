"""The process that measures a task in one mode: a job on stdin, what came of it on stdout, one JSON line each.

Lines are `{"kind": …, "value": …}`: `loaded`, `progress`, then `speed`, `quality` or `training`; else `refused` or
`error` with a reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import msgspec

from perfguard.codec import to_builtins
from perfguard.errors import PerfguardError
from perfguard.records.task_results import MeasuredQuality, MeasuredSpeed, TaskLoaded
from perfguard.records.tasks import Hardware, Mode, ModelPrecision, Scenario, TaskJob
from perfguard.tasks.loadgen_logs import (
    ACCURACY,
    DETAIL,
    OWN_ANSWERS,
    OWN_STAMPS,
    answers_sha256,
    logged_speed,
    parse_answers,
    parse_detail,
)
from perfguard.tasks.sampled_answers import are_the_same, read_sample, write_sample
from perfguard.tasks.scores import early_stopping, percentile, snr_db
from perfguard.tasks.two_clocks import StampedQueries, contradicted, write_stamps

if TYPE_CHECKING:
    from perfguard.tasks.child.backends import Loaded
    from perfguard.tasks.child.examples import TaskExamples
    from perfguard.tasks.child.models import Model
    from perfguard.tasks.child.postprocessing import Arrays

_COMPARED = 32  # Examples whose outputs are compared with PyTorch's
_BATCH = 16  # Examples at a time in the offline scenario
_FAILED = 70  # Exit code: the reason was written


def main() -> None:
    """Measure."""
    # Whatever a framework prints goes to stderr; stdout carries the results.
    with os.fdopen(os.dup(1), "w", buffering=1) as out:
        os.dup2(2, 1)
        _work(msgspec.json.decode(sys.stdin.buffer.read(), type=TaskJob), out)
    sys.stderr.flush()
    os._exit(0)  # taking the frameworks apart takes most of a second


_padding: list[bytearray] = []


def _move_memory() -> None:
    """Allocate blocks of random sizes for good; else the length of a cell's name decides where its arrays lie."""
    draw = random.SystemRandom()
    _padding.extend(bytearray(draw.randrange(1, 4096)) for _ in range(256))


def _work(job: TaskJob, out: TextIO) -> None:
    _move_memory()

    def tell(kind: str, value: Any) -> None:
        out.write(json.dumps({"kind": kind, "value": to_builtins(value)}) + "\n")

    def fail(error: BaseException) -> NoReturn:
        tell("error", reason_of(error))
        sys.stderr.flush()
        os._exit(_FAILED)  # LoadGen's threads take no exception, and would wait for ever

    try:
        from perfguard.tasks.child.backends import RefusedError, reason_of
    except ImportError as error:
        tell("refused", f"tasks need torch ({error}); install perfguard[tasks]")
        return
    try:
        if job.scenario is Scenario.TRAINING:
            _train(job, tell)
        else:
            _measure(job, tell, fail)
    except RefusedError as error:
        tell("refused", str(error))
    except (PerfguardError, ImportError) as error:
        tell("error", str(error))
    except Exception as error:  # noqa: BLE001 - a model or framework may raise anything, and it becomes a row
        fail(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    model: Model
    examples: TaskExamples
    plain: Loaded  # PyTorch in FP32
    reference: Arrays  # Its answers to the first examples
    loaded: Loaded


def _measure(job: TaskJob, tell: Any, fail: Any) -> None:
    from perfguard.tasks.child.loadgen import System, measure

    ready = _load(job, tell)
    run, inputs = ready.model.answering(ready.loaded.run), ready.examples.evaluation.inputs
    batch = _BATCH if job.scenario is Scenario.OFFLINE else 1
    pace_s = _warmed_up(ready, job.warmups, batch)
    before = _Used.now()
    began = time.perf_counter()
    system = System(run=run, inputs=inputs, batch=batch, progress=lambda count: tell("progress", count), failed=fail)
    answered = measure(system, job, pace_s)
    duration_s = time.perf_counter() - began
    if job.mode is Mode.PERFORMANCE:
        speed = _speed(job, answered.stamps, duration_s, before)
        write_sample(Path(job.logs) / OWN_ANSWERS, answered.sample)
        tell("speed", speed)
    else:
        tell("quality", _quality(job, ready))


def _train(job: TaskJob, tell: Any) -> None:
    from perfguard.tasks.child.examples import load_examples
    from perfguard.tasks.child.training import measure_training

    examples = load_examples(job.task.data, job.part, Path(job.data_folder))
    tell("training", measure_training(job, examples, tell))


def _load(job: TaskJob, tell: Any) -> _Ready:
    from perfguard.tasks.child.answers import answer_each
    from perfguard.tasks.child.backends import LoadRequest, RefusedError, Stages, backend_named, eager
    from perfguard.tasks.child.code import code_sha256
    from perfguard.tasks.child.examples import load_examples
    from perfguard.tasks.child.models import load_model

    cache = Path(job.cache)
    examples = load_examples(job.task.data, job.part, Path(job.data_folder))
    model = load_model(job.task.model, examples, data_folder=Path(job.data_folder), cache=cache)
    first = examples.evaluation.inputs[:_COMPARED]
    order = LoadRequest(
        model=model,
        precision=job.cell.precision,
        threads=job.cell.threads,
        example=first[:1],
        calibration=examples.calibration.inputs,
        cache=cache,
        stages=Stages(),
    )
    if job.cell.precision is ModelPrecision.INT8 and not len(examples.calibration.inputs):
        raise RefusedError(f"the data {job.task.data.source} has no examples to calibrate INT8 with")
    if job.cell.hardware is Hardware.CUDA:
        order = replace(order, device=_accelerator(job.cell.backend))
    plain = eager.load(replace(order, precision=ModelPrecision.FP32, device="cpu"))
    reference = plain.run(first)
    loaded = backend_named(job.cell.backend)(order)
    answers = answer_each(loaded.run, first)
    tell(
        "loaded",
        TaskLoaded(
            parameters=model.parameters,
            model_sha256=model.digest,
            data_sha256=examples.sha256,
            code_sha256=code_sha256(job.task.model.architecture),
            has_real_weights=model.has_real_weights,
            ran_in=loaded.ran_in,
            version=loaded.version,
            snr_db=snr_db(answers, reference),
            stages=order.stages.seconds,
            cached=tuple(order.stages.cached),
        ),
    )
    finish = model.postprocess
    return _Ready(
        model=model,
        examples=examples,
        plain=plain,
        reference=reference if finish is None else finish(reference, first),
        loaded=loaded,
    )


def _accelerator(backend: str) -> str:
    import torch

    from perfguard.tasks.child.backends import RefusedError

    if backend not in ("eager", "compile"):
        raise RefusedError(f"{backend} runs on CPUs alone here; choose eager or compile")
    if not torch.cuda.is_available():
        raise RefusedError("torch sees no accelerator")
    return "cuda"


def _warmed_up(ready: _Ready, warmups: int, batch: int) -> float:
    """Seconds of the fastest of some queries."""
    inputs, fastest_s = ready.examples.evaluation.inputs, float("inf")
    for number in range(max(1, warmups)):
        chosen = inputs[[(number * batch + offset) % len(inputs) for offset in range(batch)]]
        began = time.perf_counter()
        ready.model.answering(ready.loaded.run)(chosen)
        fastest_s = min(fastest_s, time.perf_counter() - began)
    return fastest_s


def _speed(job: TaskJob, stamps: StampedQueries, duration_s: float, before: _Used) -> MeasuredSpeed:
    detail = parse_detail((Path(job.logs) / DETAIL).read_text(encoding="utf-8"), source=DETAIL)
    logged, used = logged_speed(detail, job.scenario), _Used.now()
    write_stamps(Path(job.logs) / OWN_STAMPS, stamps)
    latencies_ns = stamps.latencies_ns
    is_offline = job.scenario is Scenario.OFFLINE
    own_score, own_p90 = (None, None) if is_offline else (early_stopping(latencies_ns), percentile(latencies_ns))
    cpu_s = used.cpu_s - before.cpu_s
    single = job.cell.threads == 1 and job.scenario is not Scenario.SERVER and cpu_s > 0
    return MeasuredSpeed(
        queries=job.duration.min_queries if is_offline else len(latencies_ns),
        is_valid=logged.is_valid,
        score_s=logged.score_s,
        p90_s=logged.p90_s,
        samples_per_s=logged.samples_per_s,
        own_score_s=_seconds(own_score),
        own_p90_s=_seconds(own_p90),
        duration_s=duration_s,
        wall_per_cpu=duration_s / cpu_s if single else None,
        waited_share=(used.waited_s - before.waited_s) / duration_s,
        invalid_because=tuple(detail.errors),
        is_confirmed=job.scenario is not Scenario.SINGLE_STREAM or not any(contradicted(stamps, detail.number)),
        mean_s=logged.mean_s,
    )


def _quality(job: TaskJob, ready: _Ready) -> MeasuredQuality:
    from perfguard.tasks.child.answers import answer_each, decoded
    from perfguard.tasks.child.quality import measured_quality

    answers = parse_answers((Path(job.logs) / ACCURACY).read_text(encoding="utf-8"), source=ACCURACY)
    indices, outputs = decoded(answers, ready.reference)
    evaluated = ready.examples.evaluation

    def plain() -> Arrays:
        found = answer_each(ready.model.answering(ready.plain.run), evaluated.inputs)
        return tuple(each[indices] for each in found)

    labels = None if evaluated.labels is None else evaluated.labels[indices]
    judged = {answer.sample: answer.data for answer in answers}
    return MeasuredQuality(
        value=measured_quality(job.task.quality, outputs, labels, plain),
        examples=len(indices),
        answers_sha256=answers_sha256(answers),
        is_as_in_speed=all(are_the_same(read_sample(Path(folder) / OWN_ANSWERS), judged) for folder in job.speeds),
    )


def _seconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """What all threads of this process have used so far, seconds."""

    cpu_s: float
    waited_s: float  # Ready, without a CPU

    @classmethod
    def now(cls) -> _Used:
        """By the kernel; waiting is 0 where it does not say."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        waited_ns = 0
        for path in Path("/proc/self/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited_ns += int(path.read_text(encoding="ascii").split()[1])
        return cls(cpu_s=used.ru_utime + used.ru_stime, waited_s=waited_ns / 1e9)


if __name__ == "__main__":
    main()
