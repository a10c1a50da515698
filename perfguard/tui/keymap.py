"""Every key of the application: its id, what it does, and how it is remapped from the configuration. No textual."""

from __future__ import annotations

import difflib
import string
import unicodedata
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from perfguard.errors import ConfigError


class KeyScope(str, Enum):
    """Where a key works."""

    APP = "everywhere"
    TABLE = "in tables and texts"
    OPS = "on the ops"
    HOST = "on the host"
    REPLAY = "in a replay"


class Key(Struct, frozen=True):
    """One thing that keys do."""

    id: str  # Its name in the configuration
    keys: str  # Default keys, with commas between them
    action: str  # textual's action
    text: str  # What it does, for help and the command palette
    label: str = ""  # One word for the bottom line; empty to leave it out there
    scope: KeyScope = KeyScope.APP
    takes_focus: bool = False  # Whether the next keys are text, even if they are there already


KEYS: tuple[Key, ...] = (
    Key("help", "question_mark,f1,h", "help", "show all keys and signs", label="help"),
    Key("quit", "q", "quit", "quit; a run that is watched goes on", label="quit"),
    Key("palette", "colon,ctrl+p", "command_palette", "find a command by its name", label="command"),
    Key("live", "1", "show_screen('live')", "Live: the run as it is measured"),
    Key("compare", "2", "show_screen('compare')", "Compare: forest plot, paired differences, ECDF"),
    Key("ops", "3,d", "show_screen('ops')", "Ops: which ops made the step slower", label="ops"),
    Key("history", "4", "show_screen('history')", "History: the case over the recorded runs"),
    Key("host", "5", "show_screen('host')", "Host: the machine, its topology, the doctor's rows"),
    Key("log", "6", "show_screen('log')", "Log: what happened, and what is wrong with the recording"),
    Key("fleet", "7", "show_screen('fleet')", "Fleet: hosts and submissions"),
    Key("tune", "8", "show_screen('tune')", "Tune: what `perfguard tune` has tried so far"),
    Key("screen-next", "right_square_bracket", "next_screen(1)", "next screen"),
    Key("screen-previous", "left_square_bracket", "next_screen(-1)", "previous screen"),
    Key("back", "escape", "back", "leave the filter, else go back; never quits", label="back"),
    Key(
        "filter",
        "slash",
        "screen.filter",
        "filter rows by a regular expression, !RE for all others",
        label="filter",
        takes_focus=True,
    ),
    Key("flag-next", "n", "screen.next_flag(1)", "next row that needs attention", label="next flag"),
    Key("flag-previous", "N", "screen.next_flag(-1)", "previous row that needs attention"),
    Key("case-next", "full_stop", "next_case(1)", "next case"),
    Key("case-previous", "comma", "next_case(-1)", "previous case"),
    Key("sort", "s", "screen.sort", "sort by the next column", label="sort"),
    Key("reverse", "S,r", "screen.reverse", "turn the order round"),
    Key("pause", "space", "pause", "stop painting (the run goes on; a replay stands)", label="pause"),
    Key("faster", "plus,equals_sign", "interval(-1)", "refresh more often"),
    Key("slower", "minus", "interval(1)", "refresh less often"),
    Key("zoom", "z", "screen.zoom", "make the pane under the cursor as large as the screen", label="zoom"),
    Key("swap", "a", "swap", "show effects the other way round"),
    Key("copy", "y", "copy_row", "copy the row as Markdown", label="copy"),
    Key("copy-command", "Y", "copy_command", "copy the command that says the same"),
    Key("export", "e", "export", "write what is shown into a file"),
    Key("baseline", "b", "start('baseline')", "store a new baseline (asks, shows the command)"),
    Key("runs", "c", "runs", "choose another run of this project", label="runs"),
    Key("run", "R", "start('run')", "start a run (asks, shows the command)"),
    Key("theme", "ctrl+t", "change_theme", "choose a theme"),
    Key("suspend", "ctrl+z", "suspend_process", "go to the background; `fg` brings it back"),
    Key("row-up", "up,k", "scroll_up", "up", scope=KeyScope.TABLE),
    Key("row-down", "down,j", "scroll_down", "down", scope=KeyScope.TABLE),
    Key("page-up", "pageup,ctrl+b", "page_up", "a page up", scope=KeyScope.TABLE),
    Key("page-down", "pagedown,ctrl+f", "page_down", "a page down", scope=KeyScope.TABLE),
    Key("first", "home,g", "scroll_home", "to the beginning", scope=KeyScope.TABLE),
    Key("last", "end,G", "scroll_end", "to the end", scope=KeyScope.TABLE),
    Key("open", "enter", "open", "drill down: from case to curves to ops", label="open", scope=KeyScope.TABLE),
    Key("unfold", "right,l", "unfold", "open a node", scope=KeyScope.OPS),
    Key("fold", "left", "fold", "close a node, or go to the one above", scope=KeyScope.OPS),
    Key("unfold-all", "asterisk", "unfold_all", "open all nodes, or close them", scope=KeyScope.OPS),
    Key("total", "t", "order('total')", "sort by total time", label="total", scope=KeyScope.OPS),
    Key("own", "o", "order('own')", "sort by the difference of own ops", label="own", scope=KeyScope.OPS),
    Key("tree", "w", "toggle_tree", "tree, or all ops in one list", label="tree", scope=KeyScope.OPS),
    Key("flame", "f", "toggle_flame", "waterfall, flame graph, or the op in words", label="flame", scope=KeyScope.OPS),
    Key("all", "A", "show_all", "all rows, or the first 500", label="all", scope=KeyScope.OPS),
    Key("ask", "u", "ask_doctor", "ask the doctor again", label="ask again", scope=KeyScope.HOST),
    Key("replay-slower", "less_than_sign", "replay_speed(-1)", "replay slower", scope=KeyScope.REPLAY),
    Key("replay-faster", "greater_than_sign", "replay_speed(1)", "replay faster", scope=KeyScope.REPLAY),
    Key("replay-back", "ctrl+left", "replay_seek(-1)", "replay from earlier on", scope=KeyScope.REPLAY),
    Key("replay-forward", "ctrl+right", "replay_seek(1)", "replay from later on", scope=KeyScope.REPLAY),
)

_NAMED = frozenset(
    "up down left right home end pageup pagedown insert delete backspace enter escape tab space".split()  # noqa: SIM905
).union(f"f{number}" for number in range(1, 25))
_SHORT = {"solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
          "plus_sign": "plus", "low_line": "underscore"}  # fmt: skip
"""Names of keys that textual shortens."""
_MODIFIERS = ("ctrl", "alt", "shift", "super")


def normal_key(key: str) -> str:
    """`question_mark` for `?`: the one name of a key, as textual has it.

    Raises:
        ValueError: There is no such key.
    """
    *modifiers, name = key.split("+") if len(key) > 1 else [key]
    is_known = name in _NAMED or name in _SHOWN
    if len(name) == 1:
        name = name if name.isalnum() else _name_of(name)
        is_known = bool(name)
    if not is_known or any(modifier not in _MODIFIERS for modifier in modifiers):
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
        try:
            found[name] = ",".join(normal_key(key.strip()) for key in text.split(","))
        except ValueError as error:
            message = (
                f"keys: {name}: {error.args[0]!r} is no key; "
                "write one such as x, X, ?, f2, space, ctrl+x, or several with commas"
            )
            raise ConfigError(message) from None
    taken: list[tuple[Key, set[str]]] = []
    for key in KEYS:
        own = {normal_key(name) for name in found.get(key.id, key.keys).split(",")}
        for other, others in taken:
            # Keys of the ops and of the host never work at the same time.
            can_meet = {key.scope, other.scope} != {KeyScope.OPS, KeyScope.HOST}
            if own & others and can_meet and {key.id, other.id} & found.keys():
                both = ", ".join(sorted(own & others))
                raise ConfigError(f"keys: {other.id} and {key.id} would share {both}; give one of them another key")
        taken.append((key, own))
    return found


def _shown(key: str) -> str:
    *modifiers, name = key.split("+")
    return "+".join((*modifiers, _SHOWN.get(name, name)))


def _name_of(character: str) -> str:
    """Textual's name of a character; empty where it has none."""
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return _SHORT.get(name, name)


_SHOWN = {_name_of(character): character for character in string.punctuation} | {
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
}
