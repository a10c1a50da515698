"""Which source was measured, in a few characters."""

from __future__ import annotations

import re

_TREE = re.compile(r"[0-9a-f]{40,64}")


def short_source(source_id: str | None, commit: str | None) -> str:
    """`6f076dd97fd2+31bc70`: a commit, and of what was changed since then the beginning of its hash; `-` for None.

    Args:
        source_id: Identity of the source tree: git's id of a tree and, after a plus, a hash of what differs from it.
        commit: The commit that it is or was made from; None where it is not known: then git's tree is shown as
            `tree 6f076dd97fd2`.
    """
    if not source_id:
        return "-"
    tree, plus, changes = source_id.partition("+")
    if commit is not None:
        return f"{commit[:12]}{plus}{changes[:6]}"
    return f"tree {tree[:12]}{plus}{changes[:6]}" if _TREE.fullmatch(tree) else source_id
