"""What profiles, projections and single traces say of themselves."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.report.messages.message import Message

PROFILE: Mapping[str, Message] = {
    "trace.events_without_start": Message(
        text="{trace}: {events:event} without a start (ts) ignored",
        about="Events of a trace without a start are left out.",
    ),
    "trace.events_without_duration": Message(
        text="{trace}: {events:event} without a duration, or with a negative one, counted as 0 s",
        about="Events of a trace without a valid duration count as 0 s.",
    ),
    "trace.damaged": Message(
        text="{trace} is a damaged gzip file; read as far as it can be unpacked", about="A compressed trace is damaged."
    ),
    "trace.cut_off": Message(
        text="{trace} is incomplete: {dropped:byte} of its last event ignored", about="A trace ends within an event."
    ),
    "trace.gpu_run": Message(
        text="{trace} is of a run with a GPU; only its CPU events are read", about="A trace lists a GPU."
    ),
    "trace.no_step_marker": Message(
        text="{trace} marks no step; its busiest thread's work counts as one", about="A trace has no marker of a step."
    ),
    "trace.other_updates": Message(
        text=(
            "not the same work: a step of {before} has {updates:number} optimizer updates, one of {after} "
            "{updates_after:number}; mark steps with the profiler's step()"
        ),
        about="Steps of two traces hold different numbers of optimizer updates.",
    ),
    "ops.one_process": Message(
        text="timings are inconclusive with one process per arm; op-count changes are exact",
        about="Only one process of each arm was profiled, so differences of times have no interval.",
    ),
    "profile.unreadable_lines": Message(
        text="{lines:line} of the libraries' log unreadable and ignored",
        about="Lines of oneDNN's or MKL's log could not be read.",
    ),
    "profile.unplaced_calls": Message(
        text="{unplaced} of {calls:library call} belong to no known op",
        about="Calls of oneDNN or MKL could not be placed in an op.",
    ),
    "profile.script_failed": Message(text="{error}", about="A script failed; what it printed last is in `detail`."),
    "projection.no_benchdnn": Message(
        text="oneDNN's primitives not replayed: benchdnn is not on the path", about="benchdnn is not installed."
    ),
    "projection.no_ceilings": Message(
        text="the CPUs' peak was not measured: {error}", about="The ceilings of the roofline could not be measured."
    ),
    "projection.bandwidth_of_caches": Message(
        text="little free memory: the bandwidth may be the caches'",
        about="Memory bandwidth was measured on arrays that caches may hold.",
    ),
    "projection.slower_alone": Message(
        text=(
            "{op}[[ and {others} more]] took longer alone: {alone_s} instead of {observed_s}; made-up values may be "
            "slower, or the step had the data in its caches"
        ),
        about="Replayed ops took longer than in the step.",
    ),
    "projection.out_of_time": Message(
        text="{problems:problem} not replayed for lack of time: {time_s} of the step",
        about="The budget for replays was used up.",
    ),
    "replay.out_of_time": Message(text="no time left", about="An op was not replayed: the budget was used up."),
    "replay.no_arguments": Message(
        text="no arguments in the trace; record it with record_shapes=True",
        about="An op was not replayed: the trace has no shapes.",
    ),
    "replay.no_sizes": Message(
        text="takes a list of tensors whose sizes are not in the trace",
        about="An op was not replayed: the trace lacks sizes.",
    ),
    "replay.workers_lost": Message(
        text="earlier replays ended {workers:worker}", about="Replays end after several crashes."
    ),
    "replay.crashed": Message(text="does not run alone: {error}", about="An op ended the worker that replayed it."),
    "replay.refused": Message(text="{error}", about="What the worker, or benchdnn, says of an op that it cannot run."),
    "replay.no_time": Message(text="benchdnn printed no time", about="benchdnn's output has no time."),
    "replay.status": Message(text="benchdnn: {status}[[, {why}]]", about="benchdnn's own status of a problem."),
}
