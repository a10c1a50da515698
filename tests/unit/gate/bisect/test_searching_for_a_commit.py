"""The search against brute force: every culprit, every pattern of skips, straight histories and such with merges."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.gate.bisect.bisection import Search
from perfguard.records.bisection import Answer


def straight(commits):
    return [(position - 1,) if position else () for position in range(commits)]


def histories(parents):
    """Each commit's ancestors and itself, as sets: the slow and obvious way."""
    found = []
    for position, ancestors in enumerate(parents):
        found.append({position}.union(*(found[parent] for parent in ancestors)))
    return found


def run(parents, culprit, untestable=frozenset()):
    """Search with an oracle that is right; gives the search and what was asked, with the answers."""
    contained = histories(parents)
    search, asked = Search(parents), {}
    while (position := search.choose()) is not None:
        assert position not in asked
        if position in untestable:
            asked[position] = Answer.SKIP
        else:
            asked[position] = Answer.BAD if culprit in contained[position] else Answer.GOOD
        search.tell(position, asked[position])
    return search, asked


def possible_culprits(parents, asked):
    """Brute force: commits that fit every answer, the last commit being bad."""
    contained = histories(parents)
    return tuple(
        commit
        for commit in range(len(parents))
        if commit in contained[-1]
        and all(
            answer is Answer.SKIP or (commit in contained[position]) == (answer is Answer.BAD)
            for position, answer in asked.items()
        )
    )


@st.composite
def straight_cases(draw):
    commits = draw(st.integers(1, 200))
    culprit = draw(st.integers(0, commits - 1))
    untestable = draw(st.sets(st.integers(0, commits - 1), max_size=commits))
    return commits, culprit, untestable - {commits - 1}  # the last commit is known to be bad


@st.composite
def merged_histories(draw):
    """Histories with one head: every commit is an ancestor of the last one."""
    commits = draw(st.integers(1, 30))
    parents = [set() for _ in range(commits)]
    for position in range(commits - 1):  # a child for everyone but the last, so that there is one head
        parents[draw(st.integers(position + 1, commits - 1))].add(position)
    for child, parent in draw(st.lists(st.tuples(st.integers(0, commits - 1), st.integers(0, commits - 1)))):
        if parent < child:
            parents[child].add(parent)
    return [tuple(sorted(found)) for found in parents]


@given(straight_cases())
def test_of_a_straight_history_few_commits_are_asked_for(case):
    commits, culprit, untestable = case
    _, asked = run(straight(commits), culprit, untestable)
    skips = sum(answer is Answer.SKIP for answer in asked.values())
    assert len(asked) <= (commits - 1).bit_length() + skips


@given(straight_cases())
def test_only_commits_that_fit_every_answer_stay_suspects_and_none_that_could_be_asked(case):
    commits, culprit, untestable = case
    search, asked = run(straight(commits), culprit, untestable)
    suspects = search.suspects()
    assert culprit in suspects
    assert suspects == possible_culprits(straight(commits), asked)
    assert set(suspects[:-1]) <= untestable


@given(merged_histories(), st.data())
def test_merges_are_searched_as_rightly(parents, data):
    culprit = data.draw(st.integers(0, len(parents) - 1))
    untestable = data.draw(st.sets(st.integers(0, len(parents) - 1))) - {len(parents) - 1}
    search, asked = run(parents, culprit, untestable)
    assert culprit in search.suspects()
    assert search.suspects() == possible_culprits(parents, asked)
    assert set(search.suspects()[:-1]) <= untestable


@given(merged_histories(), st.data())
def test_without_skips_exactly_the_culprit_is_named_in_any_history(parents, data):
    culprit = data.draw(st.integers(0, len(parents) - 1))
    search, asked = run(parents, culprit)
    assert search.suspects() == (culprit,)
    assert len(asked) < max(len(parents), 2)


@pytest.mark.parametrize("commits", range(1, 8))
def test_short_histories_exhaustively(commits):
    for culprit in range(commits):
        for chosen in itertools.product((False, True), repeat=commits - 1):
            untestable = frozenset(position for position, skip in enumerate(chosen) if skip)
            search, asked = run(straight(commits), culprit, untestable)
            assert search.suspects() == possible_culprits(straight(commits), asked)


@given(straight_cases())
def test_the_number_of_questions_that_are_announced_holds(case):
    commits, culprit, _ = case
    search = Search(straight(commits))
    announced, asked = search.questions_left(), 0
    while (position := search.choose()) is not None:
        search.tell(position, Answer.BAD if culprit <= position else Answer.GOOD)
        asked += 1
        assert asked + search.questions_left() <= announced
    assert search.questions_left() == 0


def test_a_single_commit_is_the_culprit_unasked():
    search = Search([()])
    assert search.choose() is None
    assert search.suspects() == (0,)


def test_the_middle_is_asked_first():
    assert Search(straight(16)).choose() == 7


def test_after_a_skip_the_search_moves_away_as_far_as_it_costs_no_question():
    search = Search(straight(21))
    assert search.choose() == 9
    search.tell(9, Answer.SKIP)
    assert search.choose() == 15  # leaves 15 or 5 of the 20 others: four questions at most, as beside the middle


def test_two_culprits_lead_to_the_first_where_all_later_commits_are_bad():
    search = Search(straight(32))
    while (position := search.choose()) is not None:
        search.tell(position, Answer.BAD if position >= 9 else Answer.GOOD)  # 9 and 25 are slower
    assert search.suspects() == (9,)


@pytest.mark.parametrize("parents", [[], [(0,)], [(), (1,)], [(), (-1,)]])
def test_what_is_no_history_is_refused(parents):
    with pytest.raises(ValueError, match="commit"):
        Search(parents)


def test_a_commit_that_is_no_suspect_cannot_be_answered():
    search = Search(straight(4))
    search.tell(1, Answer.GOOD)
    for position in (0, 1, 3):
        with pytest.raises(ValueError, match="not open"):
            search.tell(position, Answer.GOOD)
