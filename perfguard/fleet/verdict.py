"""One exit code for the shards of a submission."""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.errors import ExitCode
from perfguard.records.fleet import Shard, ShardState

_OUTCOMES = {ExitCode.PASS: "pass", ExitCode.REGRESSION: "regression", ExitCode.INCONCLUSIVE: "inconclusive"}


def outcome_of(shard: Shard) -> str:
    """What became of a shard, in a word; the run's own where its gate did not decide, as `different` is no noise."""
    if shard.state is not ShardState.DONE:
        return str(shard.state.value)
    of_code = next((name for code, name in _OUTCOMES.items() if code == shard.exit_code), "failed")
    return shard.outcome if of_code == "inconclusive" and shard.outcome is not None else of_code


def exit_code_of(shards: Sequence[Shard]) -> ExitCode:
    """A regression on any host is one; then what was not measured counts, then what was not decided."""
    codes = {shard.exit_code for shard in shards if shard.state is ShardState.DONE}
    if ExitCode.REGRESSION in codes:
        return ExitCode.REGRESSION
    if any(shard.state is not ShardState.DONE for shard in shards):
        return ExitCode.INFRASTRUCTURE
    return ExitCode.INCONCLUSIVE if ExitCode.INCONCLUSIVE in codes else ExitCode.PASS
