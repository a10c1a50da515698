from __future__ import annotations

import shutil

import pytest

from tests.watched_runs import LINES, PAIRED, Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    for name in ("plan.json", "fingerprint.json", "ops-1.json"):
        shutil.copy(PAIRED / name, path / name)
    return path


@pytest.fixture
def write(folder):
    """Appends the first lines of the recording, up to a number of them; gives the folder."""
    written = [0]

    def up_to(count: int) -> None:
        with (folder / "events.jsonl").open("ab") as file:
            file.write(b"".join(LINES[written[0] : count]))
        written[0] = count

    return up_to
