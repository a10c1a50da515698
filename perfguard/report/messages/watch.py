"""What may be wrong with a recording, and how its reader keeps out of the way."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.facts import Fact
from perfguard.report.messages.message import Message
from perfguard.report.messages.template import fill

_LEFT_OUT = "line {line} of the recording is damaged and left out: "
_READ_AGAIN = "{path} was {}; reading it again from the start"
_NICENESS = "[[, with niceness {niceness}]]"


def _missing(fact: Fact) -> str:
    one, several = "event {first} is", "events {first} to {last} are"
    template = one if fact.values.get("last") is None else several
    return fill(f"{template} missing from the recording", fact)


WATCH: Mapping[str, Message] = {
    "recording.corrupt": Message(text=f"{_LEFT_OUT}{{problem}}", about="A line of a recording is no event."),
    "recording.line_too_long": Message(
        text=f"{_LEFT_OUT}longer than {{limit_bytes}}", about="A line of a recording is longer than any event."
    ),
    "recording.unknown_event": Message(
        text="events of kind '{kind}' are left out: this perfguard does not know them; update it",
        about="A recording holds events of a newer version.",
    ),
    "recording.foreign_schema": Message(
        text="values may be wrong: the recording has schema {schema}, this perfguard reads {known_schema}; update it",
        about="A recording was written by another version, and what is shown of it may be wrong.",
    ),
    "recording.events_missing": Message(text=_missing, about="Events are missing: their numbers have a gap."),
    "recording.out_of_order": Message(
        text="event {event} of the recording is out of order", about="The numbers of events do not increase."
    ),
    "recording.more_problems": Message(
        text="{problems:more problem} in this part of the recording",
        about="A part of a recording has more problems than are listed.",
    ),
    "recording.cut": Message(
        text="the recording ends inside a line: its writer was probably killed",
        about="A recording ends inside a line, and nothing follows.",
    ),
    "recording.no_start": Message(text="no start of a run in its events", about="A recording lacks its first event."),
    "recording.not_a_file": Message(text="{path} is not a file", about="The events of a run are not a plain file."),
    "recording.unreadable": Message(text="cannot read {path}: {problem}", about="The events cannot be read."),
    "recording.vanished": Message(
        text="{path} has vanished; showing what was read", about="The events were there, and are gone."
    ),
    "recording.replaced": Message(
        text=_READ_AGAIN.replace("{}", "replaced"), about="The events are in another file than before."
    ),
    "recording.shortened": Message(text=_READ_AGAIN.replace("{}", "shortened"), about="The events became fewer."),
    "recording.rewritten": Message(
        text=_READ_AGAIN.replace("{}", "rewritten"), about="The events begin with another run."
    ),
    "remote.no_ssh": Message(
        text="cannot start ssh; trying again every {retry_s:duration}",
        about="A run is watched over ssh, and there is no ssh on this machine.",
    ),
    "remote.no_connection": Message(
        text="no connection to {host}[[ ({problem})]][[ (exit code {exit_code})]]; retrying every {retry_s:duration}",
        about="The machine of a run that is watched over ssh cannot be reached.",
    ),
    "reader.placed": Message(
        text=f"this reader runs on CPU {{cpus}}{{is_beside?, which shares a core with a measured one|}}{_NICENESS}",
        about="The reader of a run keeps away from the measured CPUs, with the lowest priority.",
    ),
    "reader.on_measured_cpus": Message(
        text=f"this reader disturbs the run: it runs on the measured CPU {{cpus}}; there is no other{_NICENESS}",
        about="The reader of a run shares its CPUs, as the machine has no others.",
    ),
    "reader.not_moved": Message(
        text=f"this reader may disturb the run: it stays on CPU {{cpus}} ({{problem}}){_NICENESS}",
        about="The reader of a run may not be moved away from the measured CPUs.",
    ),
}
"""Messages by code."""
