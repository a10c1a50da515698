"""All messages by code, and what turns a fact into its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfguard.records.facts import RECORDED_TEXT, Fact
from perfguard.report.messages.advice import ADVISED
from perfguard.report.messages.cases import CASES
from perfguard.report.messages.changes import CHANGES
from perfguard.report.messages.error_rate import ERROR_RATE
from perfguard.report.messages.formats import FORMATS
from perfguard.report.messages.gate import GATE
from perfguard.report.messages.host import HOST
from perfguard.report.messages.message import Message
from perfguard.report.messages.profile import PROFILE
from perfguard.report.messages.run import RUN
from perfguard.report.messages.steps import STEPS
from perfguard.report.messages.template import fill
from perfguard.report.messages.watch import WATCH
from perfguard.units import printable

CATALOG: Mapping[str, Message] = {
    **GATE,
    **STEPS,
    RECORDED_TEXT: Message(text="{text}", about="A sentence from a recording that is older than codes."),
    **WATCH,
    **CHANGES,
    **RUN,
    **ERROR_RATE,
    **CASES,
    **FORMATS,
    **HOST,
    **ADVISED,
    **PROFILE,
}
"""Every code that this version knows."""


def describe(fact: Fact) -> str:
    """The text of a fact, without control characters; its code and values where a newer version wrote it."""
    return printable(_text(fact))


def _text(fact: Fact) -> str:
    message = CATALOG.get(fact.code)
    if message is None:
        values = ", ".join(f"{name}={value}" for name, value in fact.values.items())
        return f"{fact.code} ({values})" if values else fact.code
    return message.text(fact) if callable(message.text) else fill(message.text, fact)


def describe_all(facts: Iterable[Fact]) -> str:
    """The texts of several facts in one line."""
    return "; ".join(describe(fact) for fact in facts)
