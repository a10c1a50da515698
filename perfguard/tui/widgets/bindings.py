"""The keymap as textual's bindings."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from perfguard.tui.keymap import Scope, keys_in


def bindings_in(*scopes: Scope) -> list[BindingType]:
    """One binding for each thing that keys do in these scopes; each has its id, so that it can be remapped."""
    return [
        Binding(key.keys, key.action, key.text, show=bool(key.label), tooltip=key.text, id=key.id)
        for key in keys_in(*scopes)
    ]
