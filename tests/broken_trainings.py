"""Changes to perfguard's own tree, each of which breaks one part of heterogeneous training."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import perfguard


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that breaks a part of training."""

    what: str
    file: str
    old: str
    new: str
    names: str  # What the gate has to name: worker or group, device, phase


SLOW_WORKER = Change(
    what="a worker spins 5 ms in each update",
    file="child/workers.py",
    old="            descend(gradients_of(loss / (stop - start), parameters), learning_rate)\n",
    new="            until = time.perf_counter() + 5e-3\n"
    "            while time.perf_counter() < until:\n"
    "                pass\n"
    "            descend(gradients_of(loss / (stop - start), parameters), learning_rate)\n",
    names="train_s of cpu-0 (CPU)",
)
LOST_REPORT = Change(
    what="a report of a worker gets lost in each training",
    file="child/processes.py",
    old="        with contextlib.suppress(BrokenPipeError):\n            os.write(self._reports",
    new='        run = getattr(message, "ticket", 0) // 1_000_000\n'
    '        if run and message.worker == "large-0" and message.updates and run != getattr(self, "run", 0):\n'
    "            self.run = run\n"
    "            return\n"
    "        with contextlib.suppress(BrokenPipeError):\n            os.write(self._reports",
    names="late_share of large-0 (CPU)",
)
SKEWED_POLICY = Change(
    what="the policy no longer balances updates",
    file="policies.py",
    old="        return limits.clamp(batch)\n",
    new='        return 1024 if group == "large" else 16\n',
    names="update_share of",
)
WRONG_MERGE = Change(
    what="a replica's merge replaces the shared model",
    file="child/workers.py",
    old="                shared.add_(result)",
    new="                shared.copy_(trained)",
    names="merge of large (CPU)",
)
CHANGES = (SLOW_WORKER, LOST_REPORT, SKEWED_POLICY, WRONG_MERGE)


def copy_tree(folder: Path) -> None:
    """Copy perfguard's package, as it is here, into a folder."""
    source = Path(perfguard.__file__).parent
    shutil.copytree(source, folder / "perfguard", ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def broken(folder: Path, change: Change) -> Iterator[None]:
    """Make a change in a copied tree for a while.

    Raises:
        ValueError: What it replaces is no longer there.
    """
    path = folder / "perfguard" / "hetero" / change.file
    before = path.read_text(encoding="utf-8")
    if change.old not in before:
        raise ValueError(f"{path} has changed: the text to replace is not there")
    path.write_text(before.replace(change.old, change.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")
