"""The sub-commands. Each can be run in samples (`--minutes`), goes on where it stopped, and loses nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from tests.proof.gates_against_peers import catalogue, effects, fault_gates, live, pilot, recording, replay, report
from tests.proof.gates_against_peers.journal import Journal
from tests.proof.gates_against_peers.making import made
from tests.proof.gates_against_peers.places import FAULTS_JOURNAL, LIVE_JOURNAL, RECORDINGS, SPINS
from tests.proof.gates_against_peers.preparing import prepare
from tests.proof.gates_against_peers.stream import read_stream
from tests.proof.gates_against_peers.tools import TOOLS

_EPILOG = """In order: prepare, pilot, effects, record, replay, live, faults, report; `all` does one after the
other. Nothing else may run meanwhile, except in `prepare` and `replay`."""


def main(arguments: Sequence[str]) -> int:
    """Run a sub-command; 0 unless something could not be done."""
    options = _parser().parse_args(arguments)
    options.run(options)
    return 0


def _prepare(options: argparse.Namespace) -> None:
    if options.recalibrate:
        SPINS.unlink(missing_ok=True)
    prepare(_say)


def _pilot(options: argparse.Namespace) -> None:
    pilot.fly(made(), allocator=options.allocator, say=_say)


def _effects(options: argparse.Namespace) -> None:
    chosen = _variants(options.variants) or catalogue.ALL
    again = not options.resume
    effects.check(chosen, made(), minutes=options.minutes, again=again, pairs=options.pairs, say=_say)


def _record(options: argparse.Namespace) -> None:
    minutes = 60.0 if options.minutes is None else options.minutes
    recording.record(made(), minutes=minutes, gate_minutes=options.gate_minutes, say=_say)


def _replay(options: argparse.Namespace) -> None:
    rows = [row for row in Journal(RECORDINGS).rows() if (recording.folder_of(row["key"]) / "events.jsonl").is_file()]
    chosen = [row for row in rows if not options.recording or row["key"] in options.recording]
    chosen = [row for row in chosen if row["gate_minutes"] == options.gate_minutes] or chosen
    pieces = replay.cut(
        {row["key"]: read_stream(recording.folder_of(row["key"])) for row in chosen},
        gate_minutes=options.gate_minutes,
        set_up_s=max((row["set_up_s"] for row in chosen), default=0.0),
        extra=options.resampled,
        seed=options.seed,
    )
    _say(f"{len(pieces.windows)} gates of {pieces.size} blocks")
    replay.run(pieces, minutes=options.minutes, resume=options.resume, say=_say)


def _live(options: argparse.Namespace) -> None:
    plan = live.Plan(
        tools=_known(options.tools, TOOLS) or tuple(TOOLS),
        variants=_variants(options.variants) or catalogue.COMPARED,
        regimes=_known(options.regimes, live.REGIMES) or live.REGIMES,
        repetitions=options.repetitions,
        gate_minutes=options.gate_minutes,
        allocator=options.allocator,
        seed=options.seed,
        neighbour_cpu=options.neighbour_cpu,
    )
    gates = tuple(live.planned(plan))
    done = _done(Journal(LIVE_JOURNAL), options)
    left = [gate for gate in gates if gate.key not in done]
    _say(f"{len(left)} of {len(gates)} gates left, at most {len(left) * options.gate_minutes / 60:.1f} hours and a bit")
    if not options.dry_run:
        live.measure(plan, made(), minutes=options.minutes, done=done, say=_say)


def _faults(options: argparse.Namespace) -> None:
    fault_gates.measure(
        _variants(options.variants) or catalogue.EXAMINED,
        made(),
        gate_minutes=options.gate_minutes,
        minutes=options.minutes,
        done=_done(Journal(FAULTS_JOURNAL), options),
        seed=options.seed,
        say=_say,
    )


def _report(_: argparse.Namespace) -> None:
    report.write(_say)


def _variants_listed(_: argparse.Namespace) -> None:
    for variant in catalogue.ALL:
        entry = {"name": variant.name, "kind": variant.kind.value, "doc": variant.doc, "cases": variant.cases}
        more = {"expected": variant.expected.value, "effect": variant.effect, "needs": variant.needs}
        _say(json.dumps({**entry, **more, "hardware": variant.hardware, "source": variant.source}))


def _all(options: argparse.Namespace) -> None:
    options.variants = options.tools = options.regimes = options.recording = None
    for step in (_prepare, _pilot, _effects, _record, _replay, _live, _faults, _report):
        step(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.gates_against_peers", epilog=_EPILOG)
    commands = parser.add_subparsers(required=True, metavar="SUB-COMMAND")

    def add(name: str, run: object, words: str, *groups: object) -> None:
        command = commands.add_parser(name, help=words, description=words)
        command.set_defaults(run=run)
        for group in dict.fromkeys(groups):
            group(command)

    add("prepare", _prepare, "install the peers, calibrate the spins, make the variants", _preparing)
    add("pilot", _pilot, "time the peers once, so that each can be given the same minutes", _allocating)
    add("effects", _effects, "see what each variant really does here", _slicing, _choosing, _pairing)
    add("record", _record, "record identical arms for --minutes (default 60)", _slicing, _sizing)
    add("replay", _replay, "give recorded gates to every rule", _slicing, _sizing, _seeding, _replaying)
    add("live", _live, "run the tools", _slicing, _retrying, _sizing, _seeding, _choosing, _allocating, _living)
    add("faults", _faults, "give every fault to perfguard", _slicing, _retrying, _sizing, _seeding, _choosing)
    add("report", _report, "write docs/measurements/peers-<machine_id>/README.md")
    add("variants", _variants_listed, "list the variants as JSON, one a line")
    everything = (_preparing, _slicing, _retrying, _sizing, _seeding, _pairing, _allocating, _replaying, _living)
    add("all", _all, "everything in order; --minutes holds for each step", *everything)
    return parser


def _preparing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recalibrate", action="store_true", help="measure the spins anew")


def _slicing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, help="begin nothing new after so many minutes")
    parser.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True, help="go on where an earlier call stopped"
    )


def _sizing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gate-minutes", type=float, default=3.0, help="what a gate may take (default 3)")


def _seeding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default 1)")


def _choosing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--variants", metavar="NAMES", help="comma-separated, or kinds such as identical,placebo,spin")


def _pairing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pairs", type=int, default=effects.PAIRS, help=f"pairs of processes for each (default {effects.PAIRS})"
    )


def _retrying(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--retry-errors",
        action="store_true",
        help="measure again what ended without an answer; the report says how many",
    )


def _allocating(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allocator",
        choices=("pinned", "default"),
        default="pinned",
        help="of the peers: as perfguard pins it (a present to them), or glibc's default",
    )


def _replaying(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--resampled", type=int, default=300, help="overlapping gates beside the separate ones")
    parser.add_argument(
        "--recording", action="append", help="name of a recording; default: all with these gate minutes"
    )


def _living(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tools", metavar="NAMES", help=f"comma-separated out of {', '.join(TOOLS)}")
    parser.add_argument("--regimes", metavar="NAMES", help="comma-separated out of idle, neighbour")
    parser.add_argument("--repetitions", type=int, default=1, help="gates of each combination (default 1)")
    parser.add_argument(
        "--neighbour-cpu", choices=("same", "other"), default="same", help="where the neighbour works (default same)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what is left, run nothing")


def _done(journal: Journal, options: argparse.Namespace) -> frozenset[str]:
    return journal.done(retry_errors=options.retry_errors) if options.resume else frozenset()


def _variants(text: str | None) -> tuple[catalogue.Variant, ...]:
    """Variants by name or by kind."""
    found = []
    for word in text.split(",") if text else ():
        of_kind = [variant for variant in catalogue.ALL if variant.kind.value == word and variant.name != word]
        found += of_kind or [catalogue.find(word)]
    return tuple(found)


def _known(text: str | None, names: Sequence[str]) -> tuple[str, ...]:
    chosen = tuple(text.split(",")) if text else ()
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; choose from {', '.join(names)}")
    return chosen


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201
