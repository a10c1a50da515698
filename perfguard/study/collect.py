"""`perfguard study profilednn`: measures item by item into the study's folder; what is there is not measured again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from perfguard.codec import from_builtins, to_json
from perfguard.errors import MeasurementError, StoreError, UsageError
from perfguard.host.identity import machine_line
from perfguard.recordings import with_nan
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.runner.session import Request
from perfguard.store.files import parse_json, write_text
from perfguard.study.evidence import (
    EVIDENCE_SCHEMA,
    ClassesCompared,
    KernelPair,
    ModelDonut,
    Scaling,
    StudyEvidence,
    StudyMachine,
    ToggleCompared,
)
from perfguard.study.items import CASE_STUDIES, KERNEL_VARIANTS, KERNELS, MODELS, PARTS, PHASES_CASE, RANKS_CASE
from perfguard.study.measured import Item, Measured
from perfguard.study.paired import measure_case_study, measure_kernel
from perfguard.study.profiled import measure_classes, measure_donut
from perfguard.study.scaling import measure_scaling

_RANKS = "ranks"
EVIDENCE = "evidence"  # Folder of a study that holds its items
_KINDS: Mapping[str, type[Item]] = {
    "donuts": ModelDonut,
    "phases": ClassesCompared,
    "kernels": KernelPair,
    "cases": ToggleCompared,
    _RANKS: Scaling,
}
_LEAST_S = 60.0  # Budget of an item, at least: below it, two arms may not finish their first blocks

RequestOf = Callable[[Sequence[str], float], Request]  # Of patterns of cases and a budget in seconds


class StudyItem(Struct, frozen=True, kw_only=True):
    """Something that is measured in one go."""

    part: str
    name: str  # `lstm`, `explicit`, …: names its file with the part
    patterns: tuple[str, ...]  # Its cases
    measure: Callable[[Request], Measured]
    is_timed: bool = False  # Whether it takes what the budget gives it; else it takes what it takes

    @property
    def id(self) -> str:
        """`donuts-lstm`."""
        return f"{self.part}-{self.name}"


class StudyPlan(Struct, frozen=True, kw_only=True):
    """What a study was asked to do."""

    folder: Path  # Where evidence and report go
    items: tuple[StudyItem, ...]  # What to measure
    host: Fingerprint  # The machine
    budget_s: float  # Wall seconds; an item that was begun is finished
    request_of: RequestOf
    progress: Callable[[Fact], None] = field(default=lambda _: None)


def items_of(parts: Iterable[str]) -> tuple[StudyItem, ...]:
    """The items of some parts, in the order of measuring."""
    donuts = [
        StudyItem(part="donuts", name=model, patterns=(case,), measure=partial(measure_donut, model=model))
        for model, case in MODELS.items()
    ]
    phases = [StudyItem(part="phases", name="classes", patterns=(PHASES_CASE,), measure=measure_classes)]
    kernels = [
        StudyItem(
            part="kernels", name=name, patterns=KERNELS, measure=partial(measure_kernel, variant=name), is_timed=True
        )
        for name in KERNEL_VARIANTS
    ]
    cases = [
        StudyItem(
            part="cases",
            name=each.name,
            patterns=(each.case,),
            measure=partial(measure_case_study, study=each),
            is_timed=True,
        )
        for each in CASE_STUDIES
    ]
    ranks = [StudyItem(part=_RANKS, name="scaling", patterns=(RANKS_CASE,), measure=measure_scaling, is_timed=True)]
    wanted = set(parts)
    return tuple(item for item in (*donuts, *phases, *kernels, *cases, *ranks) if item.part in wanted)


def collect(plan: StudyPlan) -> StudyEvidence:
    """Measure what is asked for and not in the folder yet; gives all that is known then.

    An item that cannot be measured does not stop the others: the evidence says why.

    Raises:
        InterruptedRunError: The user ended it; the items before are stored.
        StoreError: The folder cannot be read or written.
        UsageError: The folder holds items of another machine or another version of torch.
    """
    started = time.monotonic()
    done = stored_items(plan.folder)
    todo = [item for item in plan.items if item.id not in done]
    if todo and plan.budget_s > 0:
        _require_machine(plan.folder, done.values(), plan.host.machine_id)
    problems: dict[str, Fact] = {}
    for index, item in enumerate(todo):
        left_s = plan.budget_s - (time.monotonic() - started)
        if left_s <= 0:
            problems[item.id] = fact("study.budget_ended", budget_s=plan.budget_s)
            continue
        timed = sum(1 for other in todo[index:] if other.is_timed)
        budget_s = max(_LEAST_S, left_s / timed) if item.is_timed else max(_LEAST_S, left_s)
        plan.progress(fact("step.study_item", item=item.id, number=index + 1, items=len(todo)))
        try:
            measured = item.measure(plan.request_of(item.patterns, budget_s))
        except (MeasurementError, StoreError) as error:
            problems[item.id] = fact("study.item_failed", severity=Severity.NOTABLE, item=item.id, error=str(error))
            continue
        machine = machine_of(plan.host, measured)
        done[item.id] = StoredItem(part=item.part, machine=machine, value=measured.value)
        _require_same(plan.folder, done.values())
        write_text(plan.folder / EVIDENCE / f"{item.id}.json", f"{to_json(done[item.id], indent=1)}\n")
    return evidence_of(done, problems)


class StoredItem(Struct, frozen=True, kw_only=True):
    """What an item's file holds."""

    schema: int = EVIDENCE_SCHEMA
    part: str
    machine: StudyMachine
    value: Item


def stored_items(folder: Path) -> dict[str, StoredItem]:
    """The items of a study's folder, by id, in the order of measuring; empty where there are none.

    Raises:
        StoreError: A file cannot be read.
    """
    found: dict[str, StoredItem] = {}
    for item in items_of(PARTS):
        path = folder / EVIDENCE / f"{item.id}.json"
        try:
            data = parse_json(path, if_corrupt="delete it, and the study measures it again")
        except FileNotFoundError:
            continue
        found[item.id] = _decoded(data, path)
    return found


def _decoded(data: Any, path: Path) -> StoredItem:
    if not isinstance(data, dict) or data.get("schema") != EVIDENCE_SCHEMA or data.get("part") not in _KINDS:
        raise StoreError(f"{path} is no evidence that this version reads; delete it, and the study measures it again")
    kind, source = _KINDS[data["part"]], str(path)
    machine = from_builtins(data.get("machine"), StudyMachine, source=source)
    value: Item = from_builtins(with_nan(data.get("value"), kind), kind, source=source)
    return StoredItem(part=data["part"], machine=machine, value=value)


def machine_of(host: Fingerprint, measured: Measured) -> StudyMachine:
    """What an item was measured on."""
    return StudyMachine(
        machine_id=host.machine_id,
        machine=machine_line(host),
        torch=measured.torch,
        cpus=measured.cpus,
        is_intel=host.cpu.vendor == "GenuineIntel",
        has_bf16=bool(host.isa.bf16 or host.isa.amx_bf16),
    )


def _require_machine(folder: Path, done: Iterable[StoredItem], here: str) -> None:
    """Before minutes are spent: what is there must be of this machine."""
    others = {item.machine.machine_id for item in done} - {here}
    if others:
        raise UsageError(
            f"{folder / EVIDENCE} was measured on {min(others)}, this machine is {here}; "
            "choose another folder with --out"
        )


def _require_same(folder: Path, done: Collection[StoredItem]) -> None:
    """One machine and torch for all, one number of CPUs for all but ranks, which take all there are."""
    machines = {f"torch {item.machine.torch} on {item.machine.machine_id}" for item in done}
    sizes = {f"{len(item.machine.cpus)} CPUs" for item in done if item.part != _RANKS}
    for found in (machines, sizes):
        if len(found) > 1:
            raise UsageError(
                f"{folder / EVIDENCE} holds items of {' and '.join(sorted(found))}; choose another folder with --out"
            )


def nothing_measured(problems: Iterable[Fact]) -> MeasurementError:
    """That a study's folder stays empty, and each reason once."""
    ended = {"study.budget_ended": "the budget allows no measurement"}
    said = dict.fromkeys(str(found.values.get("error", ended.get(found.code, found.code))) for found in problems)
    return MeasurementError(": ".join(filter(None, ["nothing was measured", "; ".join(said)])))


def evidence_of(done: Mapping[str, StoredItem], problems: Mapping[str, Fact]) -> StudyEvidence:
    """All items as one value.

    Raises:
        MeasurementError: There is none.
    """
    if not done:
        raise nothing_measured(problems.values())
    values = [item.value for item in done.values()]
    return StudyEvidence(
        machine=next(iter(done.values())).machine,
        donuts=tuple(value for value in values if isinstance(value, ModelDonut)),
        classes=next((value for value in values if isinstance(value, ClassesCompared)), None),
        kernels=tuple(value for value in values if isinstance(value, KernelPair)),
        toggles=tuple(value for value in values if isinstance(value, ToggleCompared)),
        ranks=next((value.cells for value in values if isinstance(value, Scaling)), ()),
        problems=dict(problems),
    )
