"""The ranks of one case, as the worker sees them: one call lets all of them make the same step.

The worker itself makes no step. It starts a process for each rank, repeats every set-up and call there, and waits
meanwhile without using a CPU. Plain pipes carry the commands, so that nothing but the step's own exchange of gradients
uses gloo. perfguard starts the ranks, not torchrun: its agent would put one more process between worker and ranks,
polls while they work, restarts those that fail, and pins none.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import perfguard
from perfguard.records.protocol import CONTROL_VARIABLE, Message, encode, receive
from perfguard.records.ranks import SOCKETS_VARIABLE, Ranks
from perfguard.worker.cases import MissingTargetError

_START_SCRIPT = Path(perfguard.__file__).parents[1] / "start.py"
_LAST_WORDS_S = 1.0  # Between a rank's death and its end of the pipe; the others see it through gloo, perhaps earlier


class RankError(Exception):
    """A rank has died, or could not do what it should."""

    is_plain = True


class Timed(NamedTuple):
    """A stretch of equal steps in all ranks."""

    seconds: float  # From the first start of a rank to the last end
    result: float  # The last result: mean over ranks that average their gradients, else rank 0's
    used: dict[str, Any]  # Signals of rank 0


class RankedCall:
    """One set-up in all ranks: a call is one step in each."""

    def __init__(self, group: RankGroup, index: int) -> None:
        self._group = group
        self._index = index

    def __call__(self) -> float:
        """One step, untimed."""
        return self.time(1, spin_s=0.0).result

    def time(self, iterations: int, *, spin_s: float) -> Timed:
        """Time some steps, each followed by a spin."""
        return self._group.time(self._index, iterations, spin_s=spin_s)

    def check(self) -> dict[str, float]:
        """The numbers that `checks_of` gives for the latest step."""
        return self._group.check(self._index)


class RankGroup:
    """The processes of one case. Whatever fails in one of them ends them all."""

    def __init__(self, case: Mapping[str, Any], ranks: Ranks) -> None:
        """Start them.

        Raises:
            UsageError: The worker has too few CPUs.
            RankError: One of them cannot be started.
            MissingTargetError: This arm has no such benchmark.
        """
        sockets = json.loads(os.environ[SOCKETS_VARIABLE])
        self._masks = ranks.cpus(tuple(tuple(map(tuple, cores)) for cores in sockets))
        self._averages = ranks.exchanges
        self._set_ups = 0
        self._members: list[_Member] = []
        meeting = os.memfd_create("perfguard-ranks")
        try:
            self._members.extend(_Member(mask, meeting) for mask in self._masks)
            self._ask(
                {"do": "start", "case": case, "place": _place(rank, self._masks, ranks)} for rank in range(ranks.ranks)
            )
            if self._averages:
                self._tell_all("join", store=f"/proc/self/fd/{meeting}")
        except BaseException:
            self.close()
            raise
        finally:
            os.close(meeting)

    def set_up(self, seed: int) -> RankedCall:
        """Set the case up in every rank, each under a seed of its own."""
        index = self._set_ups
        self._tell_all("set_up", seed=seed, index=index)
        self._set_ups += 1
        return RankedCall(self, index)

    def time(self, index: int, iterations: int, *, spin_s: float) -> Timed:
        """Have every rank make its steps; they begin together, once all are ready."""
        self._tell_all("ready", index=index, iterations=iterations, spin_s=spin_s)
        timed = self._tell_all("go")
        for rank, (answer, mask) in enumerate(zip(timed, self._masks, strict=True)):
            if tuple(answer["affinity"]) != mask:
                self._fail(f"rank {rank} may run on CPUs {answer['affinity']} instead of {list(mask)}")
        seconds = max(answer["ended_s"] for answer in timed) - min(answer["started_s"] for answer in timed)
        result = self._joined([{"result": answer["result"]} for answer in timed])["result"]
        return Timed(seconds, result, timed[0]["used"])

    def check(self, index: int) -> dict[str, float]:
        """What the latest step computed: means over ranks that average their gradients, else rank 0's numbers."""
        return self._joined([answer["checks"] for answer in self._tell_all("check", index=index)])

    def imported_files(self) -> dict[str, str]:
        """Files of the modules that the ranks have imported, by module."""
        answers = self._tell_all("imported") if self._members else []
        return {name: file for answer in answers for name, file in answer["files"].items()}

    def close(self) -> None:
        """End all ranks."""
        for member in self._members:
            member.close()
        self._members = []

    def _joined(self, numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
        chosen = numbers if self._averages else numbers[:1]
        return {name: sum(each[name] for each in chosen) / len(chosen) for name in chosen[0]}

    def _tell_all(self, do: str, **fields: Any) -> list[Message]:
        return self._ask({"do": do, **fields} for _ in self._masks)

    def _ask(self, commands: Iterable[Message]) -> list[Message]:
        """The answers of all ranks to a command each."""
        if not self._members:
            raise RankError("the ranks of this case have ended")
        for member, command in zip(self._members, commands, strict=True):
            member.send(command)
        answers: dict[int, Message] = {}
        while len(answers) < len(self._members):
            for rank in self._readable(answers, None):
                answers[rank] = self._answer_of(rank)
                if answers[rank]["reply"] == "failed":
                    self._explain(rank, answers)
        return [answers[rank] for rank in range(len(self._members))]

    def _readable(self, answered: Mapping[int, Message], timeout_s: float | None) -> list[int]:
        waiting = {member.reader: rank for rank, member in enumerate(self._members) if rank not in answered}
        ready = select.select(list(waiting), [], [], timeout_s)[0] if waiting else []
        return [waiting[reader] for reader in ready]

    def _answer_of(self, rank: int) -> Message:
        answer = self._members[rank].receive()
        if answer is None:
            self._fail(f"rank {rank} {self._members[rank].how_it_ended()}")
        return answer

    def _explain(self, failed: int, answers: dict[int, Message]) -> NoReturn:
        """Raise for a rank that failed; where another one dies, that is the cause."""
        while late := self._readable(answers, _LAST_WORDS_S):
            answers.update((rank, self._answer_of(rank)) for rank in late)
        reason = answers[failed]["reason"]
        if answers[failed]["kind"] == "missing":
            self.close()
            raise MissingTargetError(reason)
        self._fail(f"rank {failed}: {reason}")

    def _fail(self, reason: str) -> NoReturn:
        self.close()
        raise RankError(reason)


def _place(rank: int, masks: Sequence[tuple[int, ...]], ranks: Ranks) -> dict[str, Any]:
    return {"rank": rank, "ranks": len(masks), "cpus": masks[rank], "exchanges": ranks.exchanges}


class _Member:
    """One rank's process, and its pipes."""

    def __init__(self, mask: Sequence[int], meeting: int) -> None:
        """`meeting` is a file that all ranks share."""
        command_read, self._command_write = os.pipe()
        reply_read, reply_write = os.pipe()
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(len(mask)))
        self.reader = os.fdopen(reply_read, "rb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(_START_SCRIPT), "perfguard.worker.ranks.rank"],
                env={**os.environ, **threads, CONTROL_VARIABLE: f"{command_read},{reply_write}"},
                stdin=subprocess.DEVNULL,
                pass_fds=(command_read, reply_write, meeting),
            )
        finally:
            os.close(command_read)
            os.close(reply_write)

    def send(self, command: Message) -> None:
        with contextlib.suppress(BrokenPipeError):  # one that is gone shows at the next receive
            os.write(self._command_write, encode(command))

    def receive(self) -> Message | None:
        """The next answer; None where the process has ended."""
        return receive(self.reader)

    def how_it_ended(self) -> str:
        code = self._process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self.reader.close()
        with contextlib.suppress(OSError):
            os.close(self._command_write)
