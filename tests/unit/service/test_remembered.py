"""What a server computes once, and which of two computations goes first."""

from __future__ import annotations

import threading

import pytest

from perfguard.service.answers import SeriesName
from perfguard.service.remembered import Answers, ChangesOfProjects

NAME = SeriesName(case_id="step.net", title="net", machine_id="one")


class Recorded:
    """Stands for what was recorded last: a run's number, and that of a word on a change."""

    def __init__(self):
        self.word = 1

    def of(self, project):
        return 7, self.word


def test_an_answer_is_made_once_and_only_while_it_is_made_others_wait():
    answers, made = Answers(2), []

    def make():
        made.append(answers.is_making)
        return "found"

    assert [answers.get("key", make), answers.get("key", make)] == ["found", "found"]
    assert (made, answers.is_making) == ([True], False)
    with pytest.raises(ValueError, match="nothing"):
        answers.get("other", raising)
    assert not answers.is_making


def raising():
    raise ValueError("nothing")


def test_changes_of_a_series_are_found_again_after_a_new_run_and_after_a_word_on_them():
    newest = Recorded()
    changes, found = ChangesOfProjects(None, newest), []

    def find():
        found.append(newest.word)
        return ()

    for row, word in ((7, 1), (7, 1), (8, 1), (8, 2)):
        newest.word = word
        assert changes.of_series("project", NAME, row, find) == ()
    assert found == [1, 1, 2]


def test_the_changes_of_all_series_let_answers_go_first_and_end_all_the_same(monkeypatch):
    names = tuple(SeriesName(case_id=f"case{number}", title="", machine_id="one") for number in range(3))
    asked = []
    for name, value in (
        ("series_names", names),
        ("_newest_of_series", {}),
        ("read_known_runs", {}),
        ("read_series", None),
    ):
        monkeypatch.setattr(f"perfguard.service.remembered.{name}", lambda *_, value=value, **__: value)

    def is_answering():
        asked.append(threading.current_thread())
        return True

    changes = ChangesOfProjects(None, Recorded(), is_answering)
    while (found := changes.of("project")).computed < len(names):
        pass
    changes.close()
    assert found.changes == ()
    assert threading.main_thread() not in asked
    assert len(asked) > len(names)
