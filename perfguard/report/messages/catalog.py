"""All messages by code, and what turns a fact into its text."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from perfguard.records.facts import Fact
from perfguard.report.messages.computed import COMPUTED
from perfguard.report.messages.message import Message, sections
from perfguard.report.messages.template import fill
from perfguard.units import printable


@functools.cache
def messages() -> Mapping[str, Message]:
    """Every code that this version knows."""
    return {
        code: replace(message, text=COMPUTED[code]) if code in COMPUTED else message
        for section in sections().values()
        for code, message in section.items()
    }


def describe(fact: Fact) -> str:
    """The text of a fact, without control characters; its code and values where a newer version wrote it.

    A damaged recording may hold a fact without some of its values; then it is the same.
    """
    try:
        return printable(_text(fact))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return printable(_plain(fact))


def _text(fact: Fact) -> str:
    message = messages().get(fact.code)
    if message is None:
        return _plain(fact)
    return message.text(fact) if callable(message.text) else fill(message.text, fact)


def _plain(fact: Fact) -> str:
    values = ", ".join(f"{name}={value}" for name, value in fact.values.items())
    return f"{fact.code} ({values})" if values else fact.code


def describe_all(facts: Iterable[Fact]) -> str:
    """The texts of several facts in one line."""
    return "; ".join(describe(fact) for fact in facts)
