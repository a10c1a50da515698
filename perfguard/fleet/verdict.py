"""One exit code for the shards of a submission."""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.errors import ExitCode
from perfguard.records.fleet import Shard, ShardState

OUTCOMES = {ExitCode.PASS: "pass", ExitCode.REGRESSION: "regression", ExitCode.INCONCLUSIVE: "inconclusive"}
"""What a shard that is done is called, by the exit code of its gate."""


def exit_code_of(shards: Sequence[Shard]) -> ExitCode:
    """A regression on any host is one; then what was not measured counts, then what was not decided."""
    codes = {shard.exit_code for shard in shards if shard.state is ShardState.DONE}
    if ExitCode.REGRESSION in codes:
        return ExitCode.REGRESSION
    if any(shard.state is not ShardState.DONE for shard in shards):
        return ExitCode.INFRASTRUCTURE
    return ExitCode.INCONCLUSIVE if ExitCode.INCONCLUSIVE in codes else ExitCode.PASS
