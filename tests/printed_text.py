"""What a terminal would show."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType


def printed(parts: Iterable[RenderableType], width: int = 200) -> str:
    """The text of parts, one below the other, without colours."""
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, color_system=None, legacy_windows=False)
    for part in parts:
        console.print(part)
    return file.getvalue()
