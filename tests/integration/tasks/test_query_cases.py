"""Queries of tasks as benchmarks: they answer, their quality is checked, and what cannot run says why."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from perfguard.benchmarks.tasks import digits, query  # noqa: E402
from perfguard.errors import MeasurementError, UsageError  # noqa: E402
from tests.task_records import FAST  # noqa: E402


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def written(tmp_path, text=FAST):
    path = tmp_path / "own.toml"
    path.write_text(text)
    return path


def test_a_query_answers_a_batch_the_same_each_time_and_reports_its_quality():
    ask = digits(backend="eager", dtype="fp32", batch=16)
    first = ask()
    assert first.shape == (16, 10)
    assert torch.equal(ask(), first)
    assert ask.check() == {"quality_top-1": pytest.approx(0.98, abs=0.02)}


def test_making_a_query_leaves_the_seed_as_it_is():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    digits(backend="eager", dtype="fp32", batch=1)
    assert torch.equal(torch.rand(3), expected)


def test_a_query_below_the_quality_target_fails_in_its_check(tmp_path):
    ask = query(written(tmp_path, FAST.replace("0.97", "1.0").replace("fraction = 0.98", "fraction = 1")))
    assert ask().shape == (1, 10)
    with pytest.raises(MeasurementError, match=r"top-1 is 0\.9\d+, the target is 1: the speed does not count"):
        ask.check()


@pytest.mark.parametrize(
    ("options", "says"),
    [({"backend": "eager", "dtype": "int8"}, "eager cannot run it in int8"), ({"backend": "tensorrt"}, "no backend")],
)
def test_what_a_backend_cannot_run_says_why(tmp_path, options, says):
    with pytest.raises(MeasurementError, match=says):
        query(written(tmp_path), **options)


@pytest.mark.parametrize("text", ["name = ", FAST.replace("[model]", "[modell]"), FAST.replace("top-1", "best")])
def test_a_task_that_cannot_be_read_is_named(tmp_path, text):
    with pytest.raises(UsageError, match=r"own\.toml cannot be read"):
        query(written(tmp_path, text))
