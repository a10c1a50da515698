"""What an audit concludes from a package and new measurements of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.task_results import MeasuredSpeed
from perfguard.records.tasks import ComplianceTest, Scenario
from perfguard.tasks.loadgen_logs import LoggedAnswer
from perfguard.tasks.sampled_answers import are_the_same

LEAST_OF_CLAIM = 0.95
"""Share of the claimed speed that one of the tries must reach. Source: MLPerf Mobile's submission rules."""
MOST_TRIES = 5  # Of a measurement that tells against the package: one that does not is enough
QUALITY_TOLERANCE = 0.05
"""How far the quality may be from the claimed one, as a share of it. Source: the same."""
MOST_GAIN_OF_SAME = 0.10
"""How much faster one sample over and over may be than each sample once. Source: MLPerf inference, TEST04."""
MOST_LOSS_OF_SAMPLED = 0.10
"""How much slower a measurement may be that logs some answers. Source: MLPerf inference, TEST01."""
_TIMED_TESTS = (ComplianceTest.SAMPLED, ComplianceTest.UNIQUE, ComplianceTest.SAME)


def share_of_claim(scenario: Scenario, claimed: float, found: float) -> float:
    """Speed found over speed claimed; scores are seconds, offline samples per second."""
    return found / claimed if scenario is Scenario.OFFLINE else claimed / found


def judge_speed(shares: Sequence[float]) -> tuple[Fact, ...]:
    """Nothing where one try reached the claim."""
    best = max(shares, default=0.0)
    if best >= LEAST_OF_CLAIM:
        return ()
    values = {"best_share": best, "least_share": LEAST_OF_CLAIM, "tries": len(shares)}
    return (fact("audit.too_slow", values, severity=Severity.GRAVE),)


def judge_quality(claimed: float | None, found: float | None) -> tuple[Fact, ...]:
    """Nothing where the quality is that of the package, within the tolerance."""
    if claimed is None or found is None:
        return (fact("audit.no_quality", severity=Severity.GRAVE),)
    if abs(found - claimed) <= QUALITY_TOLERANCE * claimed:
        return ()
    return (fact("audit.quality", severity=Severity.GRAVE, claimed=claimed, found=found),)


def judge_sampled(
    sampled: Sequence[LoggedAnswer], judged: Mapping[int, bytes], plain: MeasuredSpeed, logging: MeasuredSpeed
) -> tuple[Fact, ...]:
    """TEST01: answers logged while speed is measured are those of accuracy mode, and the speed is the same."""
    found: list[Fact] = []
    other = sum(not are_the_same((answer,), judged) for answer in sampled)
    if not sampled:
        found.append(fact("audit.nothing_sampled", severity=Severity.GRAVE))
    if other:
        found.append(fact("audit.other_answers", severity=Severity.GRAVE, other=other, sampled=len(sampled)))
    loss = _slower(plain, logging)
    if loss is not None and loss > MOST_LOSS_OF_SAMPLED:
        values = {"loss_ratio": loss, "most_ratio": MOST_LOSS_OF_SAMPLED}
        found.append(fact("audit.slower_sampled", values, severity=Severity.GRAVE))
    return tuple(found)


def judge_same(unique: MeasuredSpeed, same: MeasuredSpeed) -> tuple[Fact, ...]:
    """TEST04: one sample over and over is hardly faster than each sample once, so answers are not kept."""
    gain = _slower(same, unique)
    if gain is None:
        return (fact("audit.no_latency", severity=Severity.GRAVE),)
    if gain <= MOST_GAIN_OF_SAME:
        return ()
    values = {"gain_ratio": gain, "most_ratio": MOST_GAIN_OF_SAME}
    return (fact("audit.caching", values, severity=Severity.GRAVE),)


def accuses(speeds: Mapping[ComplianceTest | None, MeasuredSpeed]) -> bool:
    """Whether the times of the compliance tests tell against a cell, as those of short queries do by chance."""
    plain, sampled, unique, same = (speeds.get(test) for test in (None, *_TIMED_TESTS))
    is_slowed = plain is not None and sampled is not None and (_slower(plain, sampled) or 0.0) > MOST_LOSS_OF_SAMPLED
    return is_slowed or (unique is not None and same is not None and bool(judge_same(unique, same)))


def _slower(one: MeasuredSpeed, other: MeasuredSpeed) -> float | None:
    """How much longer a query of the other takes, as a share; None where it is not known."""
    if one.mean_s and other.mean_s:
        return other.mean_s / one.mean_s - 1
    if one.samples_per_s and other.samples_per_s:
        return one.samples_per_s / other.samples_per_s - 1
    return None
