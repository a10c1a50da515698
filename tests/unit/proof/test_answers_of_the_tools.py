"""What the tools print becomes an observation in the same words, and observations become tables."""

from __future__ import annotations

import json

import pytest

from tests.proof.gates_against_peers import fault_gates, live_summary, tables, targets
from tests.proof.gates_against_peers.intervals import rate
from tests.proof.gates_against_peers.pinning import Ran
from tests.proof.gates_against_peers.tools import asv_tool, pyperf_tool, pytest_benchmark_tool
from tests.proof.gates_against_peers.tools.observation import Answer
from tests.proof.gates_against_peers.tools.perfguard_tool import observed

PYPERF = """| Benchmark  | a       | b                      |
|------------|:-------:|:----------------------:|
| conv_step  | 5.00 ms | 5.60 ms: 1.12x slower  |
| layer_norm | 550 us  | 500 us: 1.10x faster   |
| Geometric mean | (ref) | 1.01x slower          |

Benchmark hidden because not significant (4): linear, attention, lstm, embedding_bag
"""
ASV = """
| Change   | Before [2e1d2486] <base>   | After [36530e06] <spin-10>   |   Ratio | Benchmark (Parameter)            |
|----------|----------------------------|------------------------------|---------|----------------------------------|
| +        | 1.27±0.2ms                 | 3.53±2ms                     |    2.78 | training.embedding_bag.time_case |
| -        | 15.4±4ms                   | 10.5±4ms                     |    0.68 | training.conv_step.time_case     |

SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY.
PERFORMANCE DECREASED.
"""
PYTEST = """
ERROR: Performance has regressed:
\ttest_case[conv_step] (0001_base) - Field 'median' has failed PercentageRegressionCheck: 21.522120769 > 2.000000000
\ttest_case[lstm] (0001_base) - Field 'median' has failed PercentageRegressionCheck: 2.100000000 > 2.000000000
"""


def ran(code, result=None, stderr=""):
    return Ran(code=code, stdout=json.dumps(result) if result else "", stderr=stderr, seconds=12.0)


def result(verdict, verdicts=(), **gate):
    return {
        "verdict": verdict,
        "reasons": [{"code": "gate.passed"}],
        "folder": "/runs/one",
        "gate": {"verdicts": list(verdicts), "blocks_total": 9, "blocks_voided": 1, **gate},
    }


def verdict(case_id, outcome, gating="gating", log_ratio=0.1):
    estimate = {"log_ratio": log_ratio, "block_sd": 0.01}
    return {"case_id": case_id, "outcome": outcome, "gating": gating, "comparison": {"estimate": estimate}}


def test_pyperf_flags_what_is_slower_and_not_the_mean_of_all():
    assert pyperf_tool.slower_of(PYPERF) == {"conv_step": pytest.approx(0.12)}


def test_asv_flags_the_rows_marked_with_a_plus():
    assert asv_tool.worse_of(ASV) == {"embedding_bag": pytest.approx(1.78)}


def test_pytest_benchmark_flags_what_failed_the_check():
    assert pytest_benchmark_tool.regressed_of(PYTEST) == {
        "conv_step": pytest.approx(0.21522, abs=1e-5),
        "lstm": pytest.approx(0.021),
    }


def test_perfguard_flags_gating_cases_only():
    verdicts = (verdict("conv_step[x=1]", "regressed"), verdict("lstm", "regressed", "advisory"))
    found = observed(ran(1, result("regressed", verdicts)))
    assert (found.answer, found.flagged) == (Answer.RED, ("conv_step",))
    assert found.effects["conv_step"] == pytest.approx(0.10517, abs=1e-5)


def test_identical_arms_count_by_what_their_times_said():
    found = observed(ran(0, result("pass", identical=True, measured_outcome="regressed")))
    assert found.answer is Answer.RED
    assert found.detail["verdict"] == "pass"


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        ("pass", Answer.PASS),
        ("host-unstable", Answer.INCONCLUSIVE),
        ("different", Answer.INCONCLUSIVE),
        ("failed", Answer.ERROR),
        ("incomparable", Answer.ERROR),
    ],
)
def test_outcomes_in_the_words_of_the_proof(outcome, answer):
    assert observed(ran(0, result(outcome))).answer is answer


def test_no_json_is_an_error_with_its_reason():
    found = observed(ran(3, stderr="the arm moved"))
    assert (found.answer, found.detail["reason"]) == (Answer.ERROR, "the arm moved")


def live_row(tool, variant, answer, flagged=(), *, kind="identical", expected=(), regime="idle"):
    return {
        "tool": tool,
        "variant": variant,
        "kind": kind,
        "answer": answer,
        "flagged": list(flagged),
        "expected": list(expected),
        "regime": regime,
        "gate_minutes": 2.0,
        "allocator": "pinned",
        "seconds": 100.0,
    }


def test_live_gates_are_counted_by_tool_and_regime():
    given = [
        live_row("perfguard", "identical", "pass"),
        live_row("perfguard", "placebo-comment", "inconclusive", kind="placebo"),
        live_row("perfguard", "spin-03", "red", ("conv_step",), kind="spin", expected=("conv_step",)),
        live_row("perfguard", "spin-03", "red", ("conv_step", "lstm"), kind="spin", expected=("conv_step",)),
        live_row("perfguard", "spin-03", "red", ("lstm",), kind="spin", expected=("conv_step",)),
        live_row("pyperf", "identical", "red", ("lstm",)),
        live_row("pyperf", "identical", "error", regime="neighbour"),
    ]
    found = {(s.tool, s.regime): s for s in live_summary.summarize(given)}
    own = found["perfguard", "idle"]
    assert (own.nothing.count, own.nothing.trials) == (0, 2)
    assert (own.found["spin-03"].count, own.found["spin-03"].trials) == (2, 3)
    assert (own.only["spin-03"].count, own.inconclusive.count) == (1, 1)
    assert found["pyperf", "idle"].identical.count == 1
    broken = found["pyperf", "neighbour"]
    assert (broken.errors, broken.nothing.trials) == (1, 0)
    assert len(tables.live_table(list(found.values()))) == 2 + 3 + 1


def fault(should_be, answer, flagged=(), **detail):
    given = {"should_be": should_be, "answer": answer, "flagged": list(flagged), "detail": detail}
    return {**given, "expected": ["conv_step"], "controls": ["lstm"]}


@pytest.mark.parametrize(
    ("row", "right"),
    [
        (fault("regression", "red", ["conv_step"]), True),
        (fault("regression", "red", ["conv_step", "lstm"]), False),
        (fault("regression", "inconclusive"), False),
        (fault("refusal", "error", exit_code=3), True),
        (fault("refusal", "red", ["conv_step"], exit_code=1), True),
        (fault("refusal", "pass", exit_code=0), False),
        (fault("nothing", "pass"), True),
        (fault("nothing", "inconclusive"), True),
        (fault("nothing", "error"), False),
        (fault("nothing", "red", ["conv_step"]), False),
        (fault("incomparable", "error", verdict="incomparable"), True),
        (fault("incomparable", "red", ["conv_step"], verdict="regressed"), False),
        (fault("cpu", "pass", cases={"conv_step": {"signals": {"cpu": "regressed"}}}), True),
        (fault("cpu", "pass", cases={"conv_step": {"signals": {"cpu": "unchanged"}}}), False),
    ],
)
def test_a_fault_counts_as_found_only_by_the_answer_it_should_get(row, right):
    assert live_summary.as_expected(row) is right


def test_another_machine_is_another_one_and_a_hundred_times_as_fast(tmp_path):
    fingerprint = {"machine_id": "here", "cpu": {"brand": "This", "microarchitecture": "zen4"}}
    (tmp_path / "fingerprint.json").write_text(json.dumps(fingerprint))
    runs = [{"values": [1.0, 2.0]}, {"warmups": [[1, 0.5]]}]
    (tmp_path / "timings.json").write_text(json.dumps({"benchmarks": [{"runs": runs}]}))
    fault_gates.pretend_another_machine(tmp_path)
    assert json.loads((tmp_path / "fingerprint.json").read_text())["machine_id"] == "another-here"
    changed = json.loads((tmp_path / "timings.json").read_text())["benchmarks"][0]["runs"]
    assert changed[0]["values"] == [0.01, 0.02]


def test_rates_are_shown_with_their_interval():
    assert tables.share(rate(0, 299)) == "0/299 = 0.0% [0.0, 1.0]"
    assert tables.share(rate(0, 0)) == "-"


def test_too_few_live_gates_reach_no_target():
    summaries = live_summary.summarize([live_row("perfguard", "identical", "pass") for _ in range(29)])
    assert [t.reached for t in targets.targets((), summaries)] == [None]
    summaries = live_summary.summarize([live_row("perfguard", "identical", "pass") for _ in range(30)])
    assert [t.reached for t in targets.targets((), summaries)] == [True]
    summaries = live_summary.summarize([live_row("perfguard", "identical", "red")])
    assert [t.reached for t in targets.targets((), summaries)] == [False]
