"""Every key of the application: its id, what it does, and how it is remapped from the configuration. No textual."""

from __future__ import annotations

import difflib
import string
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from perfguard.errors import ConfigError


class Scope(str, Enum):
    """Where a key works."""

    APP = "everywhere"
    TABLE = "in tables and texts"
    OPS = "on the ops"
    HOST = "on the host"
    REPLAY = "in a replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One thing that keys do."""

    id: str
    """Its name in the configuration."""
    keys: str
    """Default keys, with commas between them."""
    action: str
    """The application's action."""
    text: str
    """What it does, for help and the command palette."""
    label: str = ""
    """One word for the bottom line; empty to leave it out there."""
    scope: Scope = Scope.APP
    """Where it works."""


KEYS: tuple[Key, ...] = (
    Key(id="help", keys="question_mark,f1,h", action="help", text="show all keys and signs", label="help"),
    Key(id="quit", keys="q", action="quit", text="quit; a run that is watched goes on", label="quit"),
    Key(
        id="palette", keys="colon,ctrl+p", action="command_palette", text="find a command by its name", label="command"
    ),
    Key(id="live", keys="1", action="show_screen('live')", text="Live: the run as it is measured"),
    Key(id="compare", keys="2", action="show_screen('compare')", text="Compare: forest plot, paired differences, ECDF"),
    Key(id="ops", keys="3,d", action="show_screen('ops')", text="Ops: which ops made the step slower", label="ops"),
    Key(id="history", keys="4", action="show_screen('history')", text="History: the case over the recorded runs"),
    Key(id="host", keys="5", action="show_screen('host')", text="Host: the machine, its topology, the doctor's rows"),
    Key(
        id="log", keys="6", action="show_screen('log')", text="Log: what happened, and what is wrong with the recording"
    ),
    Key(id="screen-next", keys="right_square_bracket", action="next_screen(1)", text="next screen"),
    Key(id="screen-previous", keys="left_square_bracket", action="next_screen(-1)", text="previous screen"),
    Key(id="back", keys="escape", action="back", text="leave the filter, else go back; never quits", label="back"),
    Key(
        id="filter",
        keys="slash",
        action="filter",
        text="filter rows by a regular expression, !RE for all others",
        label="filter",
    ),
    Key(id="flag-next", keys="n", action="next_flag(1)", text="next row that needs attention", label="next red"),
    Key(id="flag-previous", keys="N", action="next_flag(-1)", text="previous row that needs attention"),
    Key(id="case-next", keys="full_stop", action="next_case(1)", text="next case"),
    Key(id="case-previous", keys="comma", action="next_case(-1)", text="previous case"),
    Key(id="sort", keys="s", action="sort", text="sort by the next column", label="sort"),
    Key(id="reverse", keys="S,r", action="reverse", text="turn the order round"),
    Key(
        id="pause", keys="space", action="pause", text="stop painting (the run goes on; a replay stands)", label="pause"
    ),
    Key(id="faster", keys="plus,equals_sign", action="interval(-1)", text="refresh more often"),
    Key(id="slower", keys="minus", action="interval(1)", text="refresh less often"),
    Key(id="zoom", keys="z", action="zoom", text="make the pane under the cursor as large as the screen", label="zoom"),
    Key(id="swap", keys="a", action="swap", text="show effects the other way round"),
    Key(id="copy", keys="y", action="copy_row", text="copy the row as Markdown", label="copy"),
    Key(id="copy-command", keys="Y", action="copy_command", text="copy the command that says the same"),
    Key(id="export", keys="e", action="export", text="write what is shown into a file"),
    Key(id="baseline", keys="b", action="start('baseline')", text="store a new baseline (asks, shows the command)"),
    Key(id="run", keys="R", action="start('run')", text="start a run (asks, shows the command)"),
    Key(id="theme", keys="ctrl+t", action="change_theme", text="choose a theme"),
    Key(id="suspend", keys="ctrl+z", action="suspend_process", text="go to the background; `fg` brings it back"),
    Key(id="row-up", keys="up,k", action="up", text="up", scope=Scope.TABLE),
    Key(id="row-down", keys="down,j", action="down", text="down", scope=Scope.TABLE),
    Key(id="page-up", keys="pageup,ctrl+b", action="page_up", text="a page up", scope=Scope.TABLE),
    Key(id="page-down", keys="pagedown,ctrl+f", action="page_down", text="a page down", scope=Scope.TABLE),
    Key(id="first", keys="home,g", action="first", text="to the beginning", scope=Scope.TABLE),
    Key(id="last", keys="end,G", action="last", text="to the end", scope=Scope.TABLE),
    Key(
        id="open",
        keys="enter",
        action="open",
        text="drill down: from case to curves to ops",
        scope=Scope.TABLE,
        label="open",
    ),
    Key(id="unfold", keys="right,l", action="unfold", text="open a node", scope=Scope.OPS),
    Key(id="fold", keys="left", action="fold", text="close a node, or go to the one above", scope=Scope.OPS),
    Key(id="unfold-all", keys="asterisk", action="unfold_all", text="open all nodes, or close them", scope=Scope.OPS),
    Key(id="total", keys="t", action="order('total')", text="sort by total time", scope=Scope.OPS, label="total"),
    Key(
        id="own",
        keys="o",
        action="order('own')",
        text="sort by the difference of own ops",
        scope=Scope.OPS,
        label="own",
    ),
    Key(id="tree", keys="w", action="toggle_tree", text="tree, or all ops in one list", scope=Scope.OPS, label="tree"),
    Key(
        id="flame",
        keys="f",
        action="toggle_flame",
        text="waterfall, flame graph, or the op in words",
        scope=Scope.OPS,
        label="flame",
    ),
    Key(id="all", keys="A", action="show_all", text="all rows, or the first 500", scope=Scope.OPS, label="all"),
    Key(id="ask", keys="u", action="ask_doctor", text="ask the doctor again", scope=Scope.HOST, label="ask again"),
    Key(id="replay-slower", keys="less_than_sign", action="replay_speed(-1)", text="replay slower", scope=Scope.REPLAY),
    Key(
        id="replay-faster", keys="greater_than_sign", action="replay_speed(1)", text="replay faster", scope=Scope.REPLAY
    ),
    Key(
        id="replay-back", keys="ctrl+left", action="replay_seek(-1)", text="replay from earlier on", scope=Scope.REPLAY
    ),
    Key(
        id="replay-forward", keys="ctrl+right", action="replay_seek(1)", text="replay from later on", scope=Scope.REPLAY
    ),
)

_NAMED = frozenset(
    "up down left right home end pageup pagedown insert delete backspace enter escape tab space".split()  # noqa: SIM905
).union(f"f{number}" for number in range(1, 25))
_SHORT = {"solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
          "plus_sign": "plus", "low_line": "underscore"}  # fmt: skip
"""Names of keys that textual shortens."""
_MODIFIERS = ("ctrl", "alt", "shift", "super")


def keys_in(*scopes: Scope) -> Iterator[Key]:
    """The keys of some scopes, in order."""
    return (key for key in KEYS if key.scope in scopes)


def normal_key(key: str) -> str:
    """`question_mark` for `?`: the one name of a key, as textual has it.

    Raises:
        ValueError: There is no such key.
    """
    *modifiers, name = key.split("+") if len(key) > 1 else [key]
    if any(modifier not in _MODIFIERS for modifier in modifiers):
        raise ValueError(key)
    if len(name) == 1:
        name = name if name.isalnum() else _name_of(name)
    elif name not in _NAMED and not _is_character(name):
        raise ValueError(key)
    return "+".join((*modifiers, name))


def shown_keys(keys: str) -> str:
    """`up k` for `up,k`, `?` for `question_mark`: as they stand on a keyboard."""
    return " ".join(_shown(normal_key(key.strip())) for key in keys.split(","))


def checked_keys(wanted: Mapping[str, str]) -> dict[str, str]:
    """The remapped keys in textual's names, by id.

    Raises:
        ConfigError: An id or key is unknown, or two things that work at the same place would share a key.
    """
    known = {key.id: key for key in KEYS}
    found: dict[str, str] = {}
    for name, text in wanted.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"keys: there is nothing called {name!r}; {hint}")
        found[name] = ",".join(_checked_key(name, key.strip()) for key in text.split(","))
    _check_clashes(found)
    return found


def _shown(key: str) -> str:
    *modifiers, name = key.split("+")
    character = next((known for known in string.punctuation if _name_of(known) == name), name)
    return "+".join((*modifiers, {"escape": "esc", "pageup": "pgup", "pagedown": "pgdn"}.get(character, character)))


def _checked_key(name: str, key: str) -> str:
    try:
        return normal_key(key)
    except ValueError:
        message = (
            f"keys: {name}: {key!r} is no key; write one such as x, X, ?, f2, space, ctrl+x, or several with commas"
        )
        raise ConfigError(message) from None


def _check_clashes(found: Mapping[str, str]) -> None:
    taken: list[tuple[Key, set[str]]] = []
    for key in KEYS:
        own = {normal_key(name) for name in found.get(key.id, key.keys).split(",")}
        for other, others in taken:
            if own & others and _meet(key.scope, other.scope) and {key.id, other.id} & found.keys():
                both = ", ".join(sorted(own & others))
                raise ConfigError(f"keys: {other.id} and {key.id} would share {both}; give one of them another key")
        taken.append((key, own))


def _meet(one: Scope, other: Scope) -> bool:
    """Whether keys of both scopes work at the same time."""
    return one is other or {one, other} != {Scope.OPS, Scope.HOST}


def _name_of(character: str) -> str:
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    if not name:
        raise ValueError(character)
    return _SHORT.get(name, name)


def _is_character(name: str) -> bool:
    """Whether a long name such as `question_mark` stands for a character."""
    return any(_name_of(character) == name for character in string.punctuation)
