"""Setting up a case of another tool."""

from __future__ import annotations

from typing import Any

from perfguard.worker.adopted.instances import prepare_instances
from perfguard.worker.adopted.targets import ASV, PYTEST, adopted_target
from perfguard.worker.cases import MissingTargetError, PreparedCase, seed_everything


def prepare_adopted(case: dict[str, Any], *, seed: int, check: bool, instances: int) -> PreparedCase:
    """As `perfguard.worker.cases.prepare_case`, for a case whose target names a tool."""
    target = adopted_target(case["target"])
    if target is None:
        raise MissingTargetError(f"{case['target']!r} names no suite of another tool")
    seed_everything(seed, target.place)  # data that files make when they are imported is the same in both arms
    if target.tool == PYTEST:
        from perfguard.worker.adopted.pytest_cases import prepare_test

        return prepare_test(case, target, seed=seed, check=check, instances=instances)
    if target.tool == ASV:
        from perfguard.worker.adopted.asv_instances import AsvSource

        source: Any = AsvSource.of(target, case["parameters"])
    else:
        from perfguard.worker.adopted.timer_instances import TimerSource

        source = TimerSource.of(target, case["parameters"])
    return prepare_instances(case, source, seed=seed, check=check, instances=instances)
