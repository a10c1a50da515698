"""What reads files and messages of others, each with examples to damage."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from perfguard.codec import to_json
from perfguard.config import load_config
from perfguard.errors import StoreError
from perfguard.gate.show import show_run
from perfguard.hetero.settings import parse as parse_training
from perfguard.integrations.formats.importing import import_suite
from perfguard.profile.libraries.verbose import parse_mkl_verbose, parse_verbose
from perfguard.profile.trace.trace import read_trace
from perfguard.recordings import decode_event
from perfguard.records.protocol import decode
from perfguard.report.terminal.result import render_result
from perfguard.runner.process.answers import Looked, Prepared, decoded
from perfguard.runner.process.worker_process import WorkerFailure
from perfguard.store.allowances import load_allowances
from perfguard.store.artifacts import parse_result, result_in_zip
from perfguard.store.baselines import BaselineStore
from perfguard.store.calibrations import load_calibration
from perfguard.store.op_counts import load_op_counts
from perfguard.tasks.loadgen_logs import parse_answers, parse_detail, parse_summary
from perfguard.tasks.task_files import parse_task
from tests.commented_results import REGRESSED
from tests.interchange_files import EXAMPLES
from tests.recorded_runs import DATA
from tests.task_records import FAST

REPOSITORY = Path(__file__).parents[2]
PROFILES = DATA.parent / "profile"


Read = Callable[[bytes, Path], object]


@dataclass(frozen=True)
class Target:
    """A reader: it gets damaged bytes, and a folder for what it reads from files."""

    examples: Sequence[bytes]
    read: Read
    also: tuple[type[Exception], ...] = ()  # What it documents to raise beside perfguard's own errors


TARGETS: dict[str, Target] = {}


def target(name: str, *examples: bytes, also: tuple[type[Exception], ...] = ()) -> Callable[[Read], Read]:
    """Make a target of a function."""

    def add(read: Read) -> Read:
        TARGETS[name] = Target(examples, read, also)
        return read

    return add


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _written(content: bytes, place: Path, name: str) -> Path:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _zip(content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("result.json", content)
    return made.getvalue()


OLD = DATA.parent / "schema-1"
PAIRED, ROUNDS = ((DATA / name / "events.jsonl").read_bytes() for name in ("paired", "rounds"))
RESULT = to_json(REGRESSED).encode()
CONFIG = b'suite = "tiny"\nmargin = 0.01\nbudget_s = 60.0\nconfine = "strict"\n[suites.tiny]\ngating = ["a"]\n'
ALLOW = b'[[allow]]\ncase = "a"\nmax = "5%"\nuntil = 2026-12-01\nreason = "why"\n'
DETAIL = b':::MLLOG {"key": "result_query_count", "value": 64, "time_ms": 0.1}\n'
ANSWERS = b'[{"seq_id": 0, "qsl_idx": 3, "data": "0000803F", "token_count": 0}]\n'
REPLY = b'{"reply": "prepared", "digest": 1.5, "checks": {"loss": 2.0}, "instance_s": 0.1, "affinity": [0, 1]}'


@target("worker-reply", REPLY, also=(WorkerFailure, ValueError))
def _reply(content: bytes, _: Path) -> None:
    for line in content.split(b"\n"):
        message = decode(line)
        decoded(message, Looked if "checks" in message and "digest" not in message else Prepared)


@target("event", b"\n".join(PAIRED.split(b"\n")[:12]))
def _event(content: bytes, _: Path) -> None:
    for line in content.split(b"\n"):
        decode_event(line, source="events")


@target("run", PAIRED, ROUNDS, (OLD / "events.jsonl").read_bytes())
def _run(content: bytes, place: Path) -> None:
    _written(content, place, "run/events.jsonl")
    render_result(show_run(load_config(place, {}, {}), place / "run"), width=80)


@target("result", RESULT, (OLD / "result.json").read_bytes())
def _result(content: bytes, _: Path) -> None:
    render_result(parse_result(content, source="result.json"), width=80)


@target("artifact", _zip(RESULT))
def _artifact(content: bytes, _: Path) -> None:
    result_in_zip(io.BytesIO(content), source="artifact")


@target("trace", gzip.decompress((PROFILES / "scheduled_steps.json.gz").read_bytes()))
def _trace(content: bytes, place: Path) -> None:
    read_trace(_written(content, place, "trace.json"))


@target("onednn-log", (PROFILES / "onednn_3.12_convolution.log").read_bytes())
def _onednn(content: bytes, _: Path) -> None:
    parse_verbose(_text(content).splitlines())


@target("mkl-log", (PROFILES / "mkl_2024.0.log").read_bytes())
def _mkl(content: bytes, _: Path) -> None:
    parse_mkl_verbose(_text(content).splitlines())


@target("configuration", CONFIG)
def _configuration(content: bytes, place: Path) -> None:
    load_config(_written(content, place, "perfguard.toml").parent, {}, {})


@target("allow-list", ALLOW)
def _allow_list(content: bytes, place: Path) -> None:
    load_allowances(_written(content, place, "allow.toml"), today=date(2026, 11, 1))


@target("op-counts", (OLD / "ops-1.json").read_bytes())
def _op_counts(content: bytes, place: Path) -> None:
    load_op_counts(_written(content, place, "ops.json"))


@target("calibration", *(path.read_bytes() for path in REPOSITORY.glob("baselines/*/*/calibration.json")))
def _calibration(content: bytes, place: Path) -> None:
    load_calibration(_written(content, place, "calibration.json"))


STORED = REPOSITORY / "baselines/amd-x86_64_v4-vm-1s2c-bcc41f86/quick"
OF_A_BASELINE = {name: (STORED / name).read_bytes() for name in
                 ("info.json", "noise.json", "fingerprint.json", "timings.json")}  # fmt: skip


@target("baseline", *OF_A_BASELINE.values())
def _baseline(content: bytes, place: Path) -> None:
    """The damaged file as each of a baseline's files, beside the others as they are."""
    for damaged in OF_A_BASELINE:
        for name, intact in OF_A_BASELINE.items():
            _written(content if name == damaged else intact, place, name)
        with contextlib.suppress(StoreError):
            BaselineStore(place.parent).load(place)


@target("foreign-suite", *(json.dumps(each).encode() for each in EXAMPLES.values()))
def _foreign_suite(content: bytes, _: Path) -> None:
    import_suite(content, source="suite")


@target("task", FAST.encode())
def _task(content: bytes, _: Path) -> None:
    parse_task(_text(content), "task.toml")


@target("training", (REPOSITORY / "perfguard/hetero/presets/digits.toml").read_bytes())
def _training(content: bytes, _: Path) -> None:
    parse_training(_text(content), "train.toml")


@target("loadgen-log", DETAIL)
def _loadgen_log(content: bytes, _: Path) -> None:
    parse_detail(_text(content), source="detail")


@target("loadgen-answers", ANSWERS)
def _loadgen_answers(content: bytes, _: Path) -> None:
    parse_answers(_text(content), source="answers")


@target("loadgen-summary", b"Result is : VALID\nMin : 3\n")
def _loadgen_summary(content: bytes, _: Path) -> None:
    parse_summary(_text(content))
