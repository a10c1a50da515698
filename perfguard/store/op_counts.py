"""Op counts: `census.json` in `baselines/<machine_id>/<suite>/`, to be committed.

One row a line, so that the diff of a pull request shows which op counts changed:

```
{"schema": 1,
"columns": ["kind", "phase", "module", "name", "detail", "implementation", "count", "size_bytes"],
"cases": {
"step.resnet50[…]": {"isa_class": "avx512_core_bf16", "torch": "2.13.0", "rows": [
["op", "forward", "ResNet.conv1", "aten::conv2d", "[32,3,224,224] [64,3,7,7] | f32 f32 | …", "", 1, 0],
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfguard.errors import StoreError
from perfguard.records.steps.ops import OpCountKind, OpCountRow, OpCounts, StepPhase
from perfguard.store.files import load_json, write_text

OP_COUNTS_SCHEMA = 1  # Layout of the file

_COLUMNS = ("kind", "phase", "module", "name", "detail", "implementation", "count", "size_bytes")
_values = attrgetter(*_COLUMNS)
_ORDER = attrgetter(*_COLUMNS[:-2])
_REMEDY = "restore it from git, or run `perfguard baseline update`"

_Row = tuple[OpCountKind, StepPhase, str, str, str, str, int, int]


class _StoredCase(Struct, frozen=True, kw_only=True):
    isa_class: str
    torch: str
    rows: tuple[_Row, ...]


class _StoredOpCounts(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    cases: Mapping[str, _StoredCase]


def op_counts_file(place: Path) -> Path:
    """Where the op counts of the baseline at `place` lie."""
    return place / "census.json"


def load_op_counts(path: Path) -> dict[str, OpCounts]:
    """The op counts in a file, by case id; none where there is no file: older baselines have none.

    Raises:
        StoreError: It is corrupt or of another schema.
    """
    stored = load_json(
        path,
        _StoredOpCounts,
        schema=OP_COUNTS_SCHEMA,
        if_corrupt=_REMEDY,
        if_foreign="update perfguard, or record the op counts again with `perfguard baseline update`",
    )
    if stored is None:
        return {}
    if stored.columns != _COLUMNS:
        raise StoreError(f"{path} is corrupt (its columns are {', '.join(stored.columns)}); {_REMEDY}")
    return {case_id: _op_counts_of(case_id, case, path) for case_id, case in stored.cases.items()}


def save_op_counts(path: Path, op_counts: Iterable[OpCounts]) -> None:
    """Replace the file in one step, or raise StoreError."""
    write_text(path, op_counts_text(op_counts))


def op_counts_text(op_counts: Iterable[OpCounts]) -> str:
    """The file's text: the same for the same op counts, in whatever order they and their rows come."""
    cases = sorted(op_counts, key=lambda counts: counts.case_id)
    head = f'{{"schema": {OP_COUNTS_SCHEMA},\n"columns": {_line(_COLUMNS)},\n"cases": {{\n'
    return head + ",\n".join(map(_case_text, cases)) + "\n}}\n"


def _case_text(counts: OpCounts) -> str:
    rows = ",\n".join(_line(list(_values(row))) for row in sorted(counts.rows, key=_ORDER))
    head = (
        f'{_line(counts.case_id)}: {{"isa_class": {_line(counts.isa_class)}, "torch": {_line(counts.torch)}, "rows": ['
    )
    return f"{head}\n{rows}\n]}}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _op_counts_of(case_id: str, case: _StoredCase, path: Path) -> OpCounts:
    named: list[dict[str, Any]] = [dict(zip(_COLUMNS, values, strict=True)) for values in case.rows]
    rows = sorted((OpCountRow(**values) for values in named), key=_ORDER)
    for row in rows:
        if row.count < 1 or row.size_bytes < 0:
            raise StoreError(f"{path} is corrupt ({case_id}: {row.name} is counted {row.count} times); {_REMEDY}")
    for row, following in pairwise(rows):
        if _ORDER(row) == _ORDER(following):
            raise StoreError(
                f"{path} is corrupt ({case_id}: {row.name} in {row.phase.value} of {row.module} stands there twice, as "
                f"after a merge); {_REMEDY}"
            )
    return OpCounts(case_id=case_id, isa_class=case.isa_class, torch=case.torch, rows=tuple(rows))
