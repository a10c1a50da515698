"""Everything that reads what others wrote reads it or refuses it; `make fuzz` does so for an hour."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzz.__main__ import CORPUS, finding, inputs
from tests.fuzz.targets import TARGETS

FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_read_or_refused(name, tmp_path):
    for content in islice(inputs(TARGETS[name], "fixed"), 40):
        assert finding(TARGETS[name], content, tmp_path) is None, content[:200]


@pytest.mark.parametrize("path", FOUND, ids=[f"{path.parent.name}-{path.name}" for path in FOUND])
def test_what_was_found_once_stays_fixed(path, tmp_path):
    assert finding(TARGETS[path.parent.name], path.read_bytes(), tmp_path) is None
