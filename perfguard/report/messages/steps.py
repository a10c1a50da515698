"""Messages of progress: what a command does next."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.report.messages.message import Message

STEPS: Mapping[str, Message] = {
    "step.preparing": Message(text="preparing the {arm}: {text}", about="An arm is made ready to start."),
    "step.checking": Message(text="{arm}: checking {case_id}", about="A case is set up, checked and calibrated."),
    "step.counting_ops": Message(text="counting ops", about="What a step executes is counted."),
    "step.confirming": Message(
        text="confirming {cases:case} with relocated arms", about="Flagged cases are measured again."
    ),
    "step.pairing": Message(
        text="pairing {cases:case} with the commit of the {of}", about="Stored numbers left cases open, or drifted."
    ),
    "step.profiling": Message(
        text="profiling {name}, process {process} of {processes}", about="Steps are profiled in a process of their own."
    ),
    "step.reading_traces": Message(text="reading the traces of {case_id}", about="Traces become op times."),
    "step.replaying": Message(text="replaying the ops of {case_id}", about="Ops are run alone, for a projection."),
    "step.aa_gate": Message(text="A/A gate {number} of {gates}", about="A calibration measures a gate."),
    "step.aa_gate_stored": Message(
        text="A/A gate {number} of {gates}: {outcome} after {blocks:block}, stored", about="A gate was stored."
    ),
    "step.banked_gates": Message(text="adding {gates:banked A/A gate}", about="Gates of identical arms are taken in."),
    "step.bisecting": Message(text="{good} against {bad}, {commits:commit} later", about="The ends are compared."),
    "step.asking": Message(
        text="step {number}: {commit} {subject} ({suspects:suspect})", about="A bisection measures a commit."
    ),
    "step.answered": Message(text="{commit} is {answer}", about="A bisection has the answer of a commit."),
}
