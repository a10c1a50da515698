"""What a request says of itself in commands that the user is advised to run."""

from __future__ import annotations

import shlex

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.pipeline.session import Request


@pytest.mark.parametrize(
    ("suite", "patterns", "words"),
    [
        ("quick", (), ["--suite", "quick"]),
        ("a b", (), ["--suite", "a b"]),
        ("tests/bench.py::test_x", ("tests/bench.py::test_x",), ["-c", "tests/bench.py::test_x"]),
        ("step.* kernel.*", ("step.*", "kernel.*"), ["-c", "step.*", "-c", "kernel.*"]),
    ],
)
def test_the_options_that_select_its_cases_can_be_pasted_into_a_shell(tmp_path, suite, patterns, words):
    loaded = LoadedConfig(config=Config(), origins={}, project=tmp_path)
    request = Request(
        command="gate",
        arguments=(),
        loaded=loaded,
        suite=suite,
        cases=(),
        budget_s=1.0,
        inherited={},
        patterns=patterns,
    )
    assert shlex.split(request.selecting_options) == words
