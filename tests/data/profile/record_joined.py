"""Records `joined_step.json.gz` and `joined_step.log` with the torch that runs it: `python record_joined.py [FOLDER]`.

One step in the profiler while oneDNN and MKL log each call: a convolution, which oneDNN computes, attention, for which
MKL multiplies blocks, and a linear layer in bf16, which is oneDNN's again.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

# oneDNN reads it at its first message.
os.environ["ONEDNN_VERBOSE_TIMESTAMP"] = "1"

import torch
from record import HERE, annotated_modules, save
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

WARM_UP = 2


class Net(nn.Module):
    """Two images to ten classes, by way of 16 tokens of 8 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.block = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8 * 16, 64, dtype=torch.bfloat16)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.block(self.stem(images).flatten(2).transpose(1, 2))
        return self.head(tokens.flatten(1).bfloat16()).float()


def main() -> None:
    """Record one step."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(torch.randn(2, 3, 8, 8)), torch.tensor([1, 2])).backward()
        optimizer.step()

    with annotated_modules(model, criterion):
        for _ in range(WARM_UP):
            step()
        with library_logs(folder / "joined_step.log"):
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as profiler:
                with record_function("perfguard::step"):
                    step()
    save(profiler, folder / "joined_step.json.gz")


@contextmanager
def library_logs(path: Path):
    """Log to a file what the libraries write to file descriptor 1."""
    flush = ctypes.CDLL(None).fflush
    with ExitStack() as stack:
        saved = os.dup(1)
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(target, 1)
        stack.callback(os.close, target)
        stack.callback(os.close, saved)
        stack.callback(os.dup2, saved, 1)
        stack.callback(flush, None)
        stack.enter_context(torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION))
        stack.enter_context(torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON))
        yield


if __name__ == "__main__":
    main()
