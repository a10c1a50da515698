"""Keys: all have ids, none clash, and they can be remapped from the configuration."""

from __future__ import annotations

import pytest

from perfguard.errors import ConfigError
from perfguard.tui.keymap import KEYS, KeyScope, checked_keys, normal_key, shown_keys

CONTRACT = {
    "q": "quit", "?": "help", "f1": "help", "h": "help", "up": "row-up", "down": "row-down", "j": "row-down",
    "k": "row-up", "g": "first", "G": "last", "pageup": "page-up", "pagedown": "page-down", "home": "first",
    "end": "last", "enter": "open", "escape": "back", "/": "filter", "n": "flag-next", "N": "flag-previous",
    "s": "sort", "S": "reverse", "r": "reverse", "t": "total", "o": "own", "space": "pause", "+": "faster",
    "-": "slower", "1": "live", "2": "compare", "3": "ops", "4": "history", "5": "host", "6": "log", "7": "fleet",
    "8": "tune",
    "[": "screen-previous", "]": "screen-next", "z": "zoom", ":": "palette", "ctrl+p": "palette", "y": "copy",
    "e": "export", "a": "swap", "d": "ops", "f": "flame", "b": "baseline",
}  # fmt: skip


def keys_by_name() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in KEYS:
        for name in key.keys.split(","):
            found.setdefault(normal_key(name), []).append(key.id)
    return found


@pytest.mark.parametrize(("key", "id_"), CONTRACT.items())
def test_a_key_does_what_the_contract_says(key: str, id_: str) -> None:
    assert keys_by_name()[normal_key(key)] == [id_]


def test_nothing_kills() -> None:
    assert {"K", "T"}.isdisjoint(keys_by_name())


def test_every_key_has_an_id_of_its_own_and_words() -> None:
    assert len({key.id for key in KEYS}) == len(KEYS)
    assert all(key.text and key.action for key in KEYS)


def test_no_default_keys_share_a_place() -> None:
    shared = {name: ids for name, ids in keys_by_name().items() if len(ids) > 1}
    scopes = {key.id: key.scope for key in KEYS}
    for ids in shared.values():
        assert {scopes[id_] for id_ in ids} == {KeyScope.OPS, KeyScope.HOST}


def test_keys_are_remapped_by_their_ids() -> None:
    assert checked_keys({"pause": "p", "help": "?, f2", "row-down": "ctrl+n"}) == {
        "pause": "p",
        "help": "question_mark,f2",
        "row-down": "ctrl+n",
    }
    assert checked_keys({}) == {}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"paus": "p"}, "did you mean 'pause'?"),
        ({"zzz": "p"}, "nothing called 'zzz'; known: help, quit"),
        ({"pause": "spacebar"}, "'spacebar' is no key"),
        ({"pause": "hyper+p"}, "'hyper+p' is no key"),
        ({"pause": ""}, "'' is no key"),
        ({"pause": "q"}, "quit and pause would share q"),
        ({"flame": "q"}, "quit and flame would share q"),
        ({"pause": "p", "sort": "p"}, "sort and pause would share p"),
    ],
)
def test_a_wrong_key_is_told_by_its_name(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_keys(keys)
    assert message in str(caught.value)


def test_two_things_may_swap_their_keys() -> None:
    assert checked_keys({"pause": "s", "sort": "space"}) == {"pause": "s", "sort": "space"}


def test_keys_that_never_meet_may_be_the_same() -> None:
    assert checked_keys({"ask": "f"}) == {"ask": "f"}


def test_keys_are_shown_as_they_stand_on_a_keyboard() -> None:
    assert shown_keys("question_mark,f1,ctrl+p,escape,slash") == "? f1 ctrl+p esc /"
