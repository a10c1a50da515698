"""A small training step: convolutions, batch norm, an op of its own, Adam, channels_last.

`VICTIM` in the environment names what is wrong with it; without it, nothing is.
"""

import os
import time

import torch
from torch import nn
from torch.nn import functional

WRONG = os.environ.get("VICTIM", "")
BF16 = os.environ.get("VICTIM_DTYPE") == "bf16"
FADED = os.environ.get("VICTIM_FADED") == "1"
SPIN_S = float(os.environ.get("VICTIM_SPIN_S", "0"))


@torch.library.custom_op("victim::gate", mutates_args=())
def gate(x: torch.Tensor) -> torch.Tensor:
    until = time.perf_counter() + (SPIN_S if WRONG == "spin" else 0.0)
    while time.perf_counter() < until:
        pass
    return torch.sigmoid(x)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(output)


def _gradient(ctx, gradient):
    (output,) = ctx.saved_tensors
    return gradient * output * (1 - output)


gate.register_autograd(_gradient, setup_context=_keep)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return functional.relu(self.norm(self.conv(x)))


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Linear(channels, channels)

    def forward(self, x):
        x = x / (1 + x.abs())  # AMD's Zen is slowed down by denormals in quotients only
        return x * gate(self.scale(x.mean((2, 3))))[:, :, None, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.first = Block(32)
        self.second = Block(32)
        self.squeeze = Squeeze(32)
        self.third = Block(32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.first(self.stem(x))
        if WRONG == "contiguous":
            x = x.contiguous()
        x = self.second(x)
        if WRONG == "doubled":
            x = self.second(x)
        x = self.third(self.squeeze(x))
        return self.head(x.mean((2, 3)))


def training_step():
    model = Net()
    # In both arms: an update would make normal numbers of denormal ones.
    model.second.norm.requires_grad_(False)
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(10, (4,))
    if FADED:
        scale = 1e-39 if WRONG == "denormals" else 1e-30
        with torch.no_grad():
            model.second.norm.weight.mul_(scale)
            model.second.norm.bias.fill_(scale / 10)
    if WRONG != "channels-last":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=WRONG != "unfused", foreach=False)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
