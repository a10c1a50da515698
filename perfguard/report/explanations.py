"""What the words and numbers of a result mean: verdicts, exit codes, codes of the catalogue, words of the glossary."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from msgspec import Struct

from perfguard.errors import ExitCode, UsageError
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.messages.catalog import messages
from perfguard.report.messages.glossary import GLOSSARY, meanings
from perfguard.report.messages.message import UNKNOWN
from perfguard.report.messages.template import outline

_VERDICTS: dict[Outcome | GateOutcome, str] = {
    Outcome.REGRESSED: "The candidate is slower by more than the margin, and an independent run with relocated arms "
    "confirmed it. Exit code 1.",
    Outcome.IMPROVED: "The candidate is faster by more than the margin. It passes.",
    Outcome.UNCHANGED: "The whole interval of the effect lies within the equivalence margin (2 %; see `--detect`).",
    Outcome.SAME_CODE: "Both arms run the same code in the same environment, so there is nothing to measure. "
    "`--measure-anyway` measures all the same.",
    Outcome.UNTOUCHED: "The change does not reach the code that the case runs, so it was not measured. `--measure-all` "
    "measures it.",
    Outcome.INCONCLUSIVE: "The noise was too high to tell; it is never taken for unchanged. The result says which "
    "effect was detectable, and how many blocks would decide. Give more time with `--budget`, or quieten the host "
    "(`perfguard doctor`). Exit code 4.",
    Outcome.INCOMPARABLE: "The stored baseline belongs to another machine, software or setting. Exit code 3.",
    Outcome.NO_BASELINE: "Nothing is stored for this machine or case; `perfguard baseline update` stores it. Exit code "
    "3.",
    Outcome.FAILED: "The case could not be measured: it raised an error, crashed, hung, or its times contradict the "
    "parent's clock. Exit code 3.",
    Outcome.INVALID: "The quality of the candidate's results misses its target, so its speed does not count. Exit code "
    "1.",
    Outcome.DIFFERENT: "The arms compute different results from the same seeds, so their times say nothing about "
    "speed. Exit code 4.",
    Outcome.ALLOWED: "Slower, but within what the project's allow-list accepts (`perfguard allow`). It passes.",
    GateOutcome.PASS: "Each gating case has an answer, and none regressed. Exit code 0.",
    GateOutcome.HOST_UNSTABLE: "More than a quarter of the blocks were disturbed, by other programs, the hypervisor or "
    "a slow host, and a gate may leave out a quarter at most. So nothing is decided: measure again when the host is "
    "quiet; `perfguard doctor` says what disturbs it. Exit code 4.",
}
_EXIT_CODES = {
    ExitCode.PASS: "No regression. Improvements are reported and pass.",
    ExitCode.REGRESSION: "A case regressed, computes different results, or misses its quality target.",
    ExitCode.USAGE: "The command line or the configuration is wrong. The message says where.",
    ExitCode.INFRASTRUCTURE: "A case failed, the host is unfit, or the baseline is missing or belongs to another "
    "machine.",
    ExitCode.INCONCLUSIVE: "No answer: too much noise for the effect that was asked for, a disturbed host, or arms "
    "that compute different results. The result says which.",
    ExitCode.NOTHING_SELECTED: "No case matches what was asked for, or the base of a change has no settings yet.",
    ExitCode.INTERRUPTED: "Interrupted. What was measured is kept, and `perfguard show` judges it.",
}
_ADVICE = "advice."


class Explanation(Struct, frozen=True, kw_only=True):
    """What one word means."""

    name: str
    meaning: str
    text: str | None = None  # What is printed, with names of values in capitals
    change: str | None = None  # What to do about it
    gain: str | None = None  # What that brought elsewhere, with its source


def explain(word: str) -> tuple[Explanation, ...]:
    """All that a word names: a verdict, an exit code, a code, advice in brackets, a group of codes, or a term.

    Raises:
        UsageError: It names nothing; with the nearest that does.
    """
    wanted = word.strip().strip("[]")
    known = {each.name: each for each in _all()}
    for name in (wanted, wanted.replace(" ", "-"), _ADVICE + wanted.replace("-", "_")):
        if name in known:
            return (known[name],)
    code = wanted.replace("-", "_").rstrip(".")
    group = tuple(each for name, each in known.items() if name.startswith(code + "."))
    terms = tuple(Explanation(name=name, meaning=meaning) for name, meaning in meanings(wanted).items())
    if found := terms + group or tuple(each for name, each in known.items() if name.endswith("." + code)):
        return found
    every = [*known, *GLOSSARY]
    near = difflib.get_close_matches(wanted, every, n=1, cutoff=0.7) or [name for name in every if wanted in name][:1]
    hint = f"did you mean {near[0]!r}?" if near and wanted else "`perfguard explain` lists all that it knows"
    raise UsageError(f"{word!r} is no verdict, exit code, code or term; {hint}")


def groups() -> dict[str, tuple[str, ...]]:
    """Everything that can be explained, by kind: verdicts, exit codes, groups of codes, and terms."""
    rooms = dict.fromkeys(code.partition(".")[0] for code in sorted(messages()))
    return {
        "Verdicts": tuple(outcome.value for outcome in _VERDICTS),
        "Exit codes": tuple(str(int(code)) for code in _EXIT_CODES),
        "Groups of codes": tuple(rooms),
        "Terms": tuple(GLOSSARY),
    }


def _all() -> Iterator[Explanation]:
    for outcome, meaning in _VERDICTS.items():
        yield Explanation(name=outcome.value, meaning=meaning)
    for code, meaning in _EXIT_CODES.items():
        yield Explanation(name=str(int(code)), meaning=meaning)
    for name, message in messages().items():
        yield Explanation(
            name=name,
            meaning=message.about,
            text=outline(message.text) if isinstance(message.text, str) else None,
            change=outline(message.change) if message.change else None,
            gain=message.gain if message.change and message.gain != UNKNOWN else None,
        )
