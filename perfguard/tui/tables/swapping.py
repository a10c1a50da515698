"""The same run seen the other way round: the candidate as what the baseline is compared with."""

from __future__ import annotations

from dataclasses import replace

from perfguard.watch.view.run_view import CaseSeries, CaseView


def swapped_case(case: CaseView) -> CaseView:
    """A case with its effect inverted; its verdict stays what it is, since it was judged the right way round."""
    return replace(
        case,
        baseline_s=case.candidate_s,
        candidate_s=case.baseline_s,
        log_ratio=-case.log_ratio if case.log_ratio is not None else None,
        lower=-case.upper if case.upper is not None else None,
        upper=-case.lower if case.lower is not None else None,
    )


def swapped_series(series: CaseSeries) -> CaseSeries:
    """The curves of `swapped_case`."""
    return replace(
        series,
        baseline_s=series.candidate_s,
        candidate_s=series.baseline_s,
        block_log_ratios=tuple(-ratio for ratio in series.block_log_ratios),
    )
