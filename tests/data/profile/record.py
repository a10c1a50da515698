"""Records the traces beside this file with the torch that runs it: `python tests/data/profile/record.py [FOLDER]`.

- `marked_step.json.gz`: one step with shapes, stacks and memory, in the events that perfguard's child adds
  (`perfguard::step`, `module:…`)
- `scheduled_steps.json.gz`: two steps of a profiler with a schedule, shapes and stacks, as a user records them

Both are of a convolution, a batch norm and a linear layer with Adam. The code under test is `SOURCE`, which is compiled
under a name of its own; other paths of this machine are replaced.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity, profile, record_function, schedule

HERE = Path(__file__).parent
SOURCE_FILE = "/home/user/train.py"
SOURCE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8 * 6 * 6, 10)

    def forward(self, images):
        return self.head(self.stem(images).flatten(1))


torch.manual_seed(0)
model, criterion = Net(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), fused=True)


def step():
    images, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
WARM_UP = 2


def main() -> None:
    """Record both."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    torch.set_num_threads(1)
    program: dict[str, object] = {}
    exec(compile(SOURCE, SOURCE_FILE, "exec"), program)
    step = program["step"]
    with annotated_modules(program["model"], program["criterion"]):
        for _ in range(WARM_UP):
            step()
        with profile(
            activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True, profile_memory=True, acc_events=True
        ) as profiler:
            with record_function("perfguard::step"):
                step()
    save(profiler, folder / "marked_step.json.gz")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=2),
        record_shapes=True,
        with_stack=True,
        on_trace_ready=lambda finished: save(finished, folder / "scheduled_steps.json.gz"),
    ) as profiler:
        for _ in range(4):
            step()
            profiler.step()


@contextmanager
def annotated_modules(*roots):
    """An event around every call of a module, named by its path."""
    names = {}
    for root in roots:
        for path, module in root.named_modules():
            names[module] = ".".join(part for part in (type(root).__name__, path) if part)
    open_calls = []

    def enter(module, _arguments):
        call = record_function(f"module:{names[module]}")
        call.__enter__()
        open_calls.append(call)

    def leave(_module, _arguments, _result):
        open_calls.pop().__exit__(None, None, None)

    with ExitStack() as stack:
        stack.callback(register_module_forward_pre_hook(enter).remove)
        stack.callback(register_module_forward_hook(leave, always_call=True).remove)
        yield


def save(profiler, path: Path) -> None:
    """Export a trace without the names of this machine and its folders."""
    with tempfile.TemporaryDirectory() as place:
        raw = Path(place) / "trace.json"
        profiler.export_chrome_trace(str(raw))
        text = raw.read_text(encoding="utf-8")
        for private, public in ((place, "/tmp"), (str(HERE), "/home/user"), (sys.prefix, "/opt/venv")):
            text = text.replace(private, public)
        text = re.sub(r'"host_name": "[^"]*"', '"host_name": "host"', text)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
