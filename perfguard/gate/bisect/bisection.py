"""The search of a bisection: which commit to ask for next, and which may still be the first bad one. Pure.

A commit is bad when it contains the culprit: the culprit is the commit itself or one of its ancestors. Sets of commits
are integers, one bit for each commit, which makes histories with merges as simple as straight ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfguard.records.bisection import Answer

_LONGEST_PART = 0.75
"""A jump away from skipped commits leaves at most this share of the suspects on one side."""


class Search:
    """Finds the first bad commit of a history whose last commit is bad and whose outside is good."""

    def __init__(self, parents: Sequence[Sequence[int]]) -> None:
        """Begin with every commit under suspicion.

        Args:
            parents: For each commit, oldest first, the positions of its parents in this sequence; parents outside it
                are good and left out. The last commit is the bad one; all others are its ancestors.

        Raises:
            ValueError: There is no commit, or a parent does not come before its child.
        """
        if not parents:
            raise ValueError("a search needs at least one commit")
        self._history: list[int] = []
        for position, ancestors in enumerate(parents):
            history = 1 << position
            for parent in ancestors:
                if not 0 <= parent < position:
                    raise ValueError(f"parent {parent} does not come before commit {position}")
                history |= self._history[parent]
            self._history.append(history)
        self._bad = len(parents) - 1
        self._suspects = self._history[self._bad]
        self._skipped = 0

    def tell(self, position: int, answer: Answer) -> None:
        """Take in what a commit is.

        Args:
            position: One that `choose` gave.
            answer: Good, bad, or cannot be told.

        Raises:
            ValueError: That commit is no suspect any more, or is known to be bad.
        """
        if not self._open() >> position & 1:
            raise ValueError(f"commit {position} is not open")
        if answer is Answer.GOOD:
            self._suspects &= ~self._history[position]
        elif answer is Answer.BAD:
            self._suspects &= self._history[position]
            self._bad = position
        else:
            self._skipped |= 1 << position

    def choose(self) -> int | None:
        """The commit to ask for next; None where no further answer could tell more.

        Among the commits that leave the fewest questions in the worst case: the one farthest from those that were
        skipped, since neighbours of a commit that does not build often do not build either; without skipped ones the
        most even split. git's own bisection jumps away at random, which may cost questions.
        """
        candidates = list(_positions(self._open()))
        if not candidates:
            return None
        return min(candidates, key=self._preference)

    def suspects(self) -> tuple[int, ...]:
        """Commits one of which is the first bad one, oldest first; the last is known to be bad."""
        return tuple(_positions(self._suspects))

    def questions_left(self) -> int:
        """Answers that a straight history still needs, if none is skipped."""
        return _questions((self._suspects & ~self._skipped).bit_count())

    def _open(self) -> int:
        return self._suspects & ~self._skipped & ~(1 << self._bad)

    def _preference(self, position: int) -> tuple[int, bool, int, int, int]:
        telling = self._suspects & ~self._skipped
        if_bad = (self._history[position] & telling).bit_count()
        if_good = telling.bit_count() - if_bad
        larger = max(if_bad, if_good)
        is_lopsided = larger > _LONGEST_PART * (if_bad + if_good)
        return (_questions(larger), is_lopsided, -self._distance_to_skipped(position), larger, position)

    def _distance_to_skipped(self, position: int) -> int:
        """Commits by which two suspects' histories differ; on a straight history how far apart they are."""
        skipped = _positions(self._suspects & self._skipped)
        return min(((self._history[position] ^ self._history[other]).bit_count() for other in skipped), default=0)


def _questions(suspects: int) -> int:
    """Yes-or-no questions that tell so many apart: the logarithm to base two, rounded up."""
    return max(suspects - 1, 0).bit_length()


def _positions(commits: int) -> Iterator[int]:
    while commits:
        lowest = commits & -commits
        yield lowest.bit_length() - 1
        commits ^= lowest
