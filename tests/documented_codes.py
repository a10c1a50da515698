"""`docs/codes.md` and the table of `docs/glossary.md`, written from what the package says: `make codes`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from perfguard.report.messages.catalog import messages
from perfguard.report.messages.glossary import GLOSSARY
from perfguard.report.messages.message import Message
from perfguard.report.messages.template import placeholders
from tests.made_facts import SUBJECT, MadeFact, made_facts

DOCUMENT = Path(__file__).parents[1] / "docs" / "codes.md"
WORDS = DOCUMENT.with_name("glossary.md")
_HEAD = """\
# Codes

What perfguard says of a run is data: a code, a severity, a subject (case, arm, op, place) and values. Results, events
and profiles hold these; the text that people read is made from them. This page is written by `make codes`.

```json
{"code": "case.crashed", "severity": "grave", "subject": {"arm": "candidate"}, "values": {"signal": "SIGSEGV"}}
```

- **Codes are stable**, and so are the names of their values. Texts may change with any version.
- **Severity**: `grave` where results cannot be trusted, `notable` where acting is worth it, else `info`. `-` where it
  depends on the finding.
- **Units** are the ends of names: `_s` seconds, `_bytes`, `_hz`, `_ratio` and `_share` parts of one, `_log_ratio` the
  natural logarithm of candidate / baseline. Other values are counts, flags and names.
- **Text**: `{value}` stands for a value, `[[…]]` is left out where a value in it is missing; `-` where the text is
  put together from what was found.
"""
_TABLE = re.compile(r"(\| --- \| --- \|\n|\|---\|---\|\n)(?:\|.*\n)*")
_PIPE = re.compile(r"(?<!\\)\|")


def document() -> str:
    """The whole page."""
    rooms = groupby(sorted(messages().items()), key=lambda entry: entry[0].partition(".")[0])
    made = made_facts()
    parts = [_room(room, [_row(code, message, made) for code, message in entries]) for room, entries in rooms]
    return "\n".join([_HEAD, *parts])


def glossary(page: str) -> str:
    """A page whose one table holds the words of the glossary."""
    rows = "".join(f"| {word} | {_cell(meaning)} |\n" for word, meaning in GLOSSARY.items())
    return _TABLE.sub(lambda found: found[1] + rows, page, count=1)


def _room(room: str, rows: Sequence[str]) -> str:
    head = ("| code | severity | values | text | meaning |", "| --- | --- | --- | --- | --- |")
    return "\n".join([f"## {room}", "", *head, *rows, ""])


def _row(code: str, message: Message, made: Sequence[MadeFact]) -> str:
    calls = [call for call in made if call.code == code]
    severities = {call.severity for call in calls}
    severity = severities.pop() if len(severities) == 1 else None
    names = {name for call in calls for name in call.names} - SUBJECT
    if isinstance(message.text, str):
        names |= placeholders(message.text).keys() - SUBJECT
    values = ", ".join(f"`{name}`" for name in sorted(names)) or "-"
    text = _code(message.text) if isinstance(message.text, str) else "-"
    return f"| `{code}` | {severity or '-'} | {values} | {text} | {_cell(message.about)} |"


def _code(text: str) -> str:
    """Code of Markdown in a table."""
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{_cell(text)}{space}{fence}"


def _cell(text: str) -> str:
    return _PIPE.sub(r"\\|", text)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
    WORDS.write_text(glossary(WORDS.read_text(encoding="utf-8")), encoding="utf-8")
