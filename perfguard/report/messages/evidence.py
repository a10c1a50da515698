"""Messages of what a piece of advice rests on: the codes `seen.*`."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.report.messages.message import Message

EVIDENCE: Mapping[str, Message] = {
    "seen.calls": Message(
        text="{calls:calls} of {ops:names} per step[[, {time_s}]][[, {python_s} of it in Python]]",
        about="Ops that a finding concerns.",
    ),
    "seen.primitives": Message(
        text="{calls:calls} of {implementations:names} per step[[, {time_s}]][[; longest: {longest}]]",
        about="Primitives that a finding concerns.",
    ),
    "seen.copies": Message(
        text="{kind} per step: {calls:number}[[, {written_bytes} written]], {time_s}; mostly {between:names}",
        about="Copies, casts or reorders.",
    ),
    "seen.layout_lost": Message(
        text=(
            "convolution calls per step: {convolutions:number}, of which {lost:number} read no channels_last tensor"
            "[[; copies there take {copies_s}]]"
        ),
        about="Convolutions of a channels_last model that read another layout.",
    ),
    "seen.contiguous": Message(
        text="convolution calls per step: {convolutions:number}, {contiguous:number} contiguous, none channels_last",
        about="Convolutions by the layout that they read; the rest fits both.",
    ),
    "seen.no_instructions": Message(
        text="this machine has no instructions for {dtype}[[; oneDNN's widest are {widest}]]",
        about="A dtype that the machine does not compute in.",
    ),
    "seen.variables": Message(
        text="{variables}[[; oneDNN's widest instructions here: {widest}]]",
        about="Variables that change what a step does.",
    ),
    "seen.denormals": Message(
        text="{denormals} of {counted} values of the {group} are denormal[[, most in {worst}]]",
        about="Denormal values that the process counted.",
    ),
    "seen.slow_op": Message(
        text=(
            "{op} on {shapes}[[ in {module}]] [[takes {times_baseline:number} times as long as in the baseline]]"
            "[[takes {call_s} per call, {alone_s} alone with other values]]"
            "[[takes {times_peers:number} times as long per element as at {peers} other places]]"
        ),
        about="An op that is slow for what it is.",
    ),
    "seen.no_proof": Message(
        text="not proven: activations are not inspected", about="Denormals are suspected by time alone."
    ),
    "seen.layers": Message(
        text="{layers:layer}: {modules:names}[[; oneDNN computes these gradients in {weights_s} per step]]",
        about="Layers whose backward is not needed.",
    ),
    "seen.forgotten": Message(
        text="parameters of {modules:names} require gradients, but no optimizer holds them",
        about="Parameters without an optimizer.",
    ),
    "seen.norms": Message(
        text="only for the norm layers before: {modules:names}",
        about="Norm layers that keep frozen layers in backward.",
    ),
    "seen.written_out": Message(
        text=(
            "two ops scale and shift each channel in {modules:module}[[ ({kinds})]], {time_s} per step with backward"
        ),
        about="Frozen batch norms that are written out.",
    ),
    "seen.tiny_calls": Message(
        text=(
            "{calls:number} calls below {below_s} per step take {tiny_share} of it, Python {python_share}"
            "{has_profiler_cost?, profiler included|}"
        ),
        about="Tiny ops of a step.",
    ),
    "seen.place": Message(text="{part_share} in {phase}[[ of {module}]]", about="Where most of the time is."),
    "seen.page_faults": Message(
        text="{faults:number} minor page faults per step; at {fault_s} each they take {part_share} of it",
        about="Page faults, and their share at the price that one had elsewhere.",
    ),
    "seen.cache_misses": Message(
        text="{misses} per step: {problems:names}", about="Primitives that oneDNN created in a steady step."
    ),
    "seen.threads": Message(
        text=(
            "[[{loaders} loader processes and ]]{threads:thread}[[ on {cpus:CPU}]]"
            "[[; the control group's quota is {quota_cpus:number} CPUs]]"
        ),
        about="Threads, and the CPUs that they may use.",
    ),
    "seen.before_model": Message(
        text="{time_s} per step before the model[[, {python_s} of it in no op: files, decoding, other Python]]",
        about="Time before the forward pass.",
    ),
    "seen.compiler_events": Message(
        text="{times:time}[[: {reasons:names}]]", about="Events of torch.compile, with its own reasons."
    ),
}
