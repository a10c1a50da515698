"""Small training steps and kernels of PyTorch on CPUs: what the gates under test are to guard.

Each case is a factory: its set-up is not timed, what it returns is. Variants are edits of this file (variants.py), so
what they change stands in lines of its own.
"""

import time

import torch
from torch import nn
from torch.nn import functional

SPIN_S = {"conv_step": 0.0, "linear": 0.0, "layer_norm": 0.0, "attention": 0.0, "lstm": 0.0, "embedding_bag": 0.0}
"""Seconds that one op of a case spins; variants put a fixed number here, nothing is calibrated in the process."""
HIDDEN = 3200
"""Width of the linear case's hidden layer; variants widen it by multiples of 32, and the loss stays the same."""
_BASE_HIDDEN = 3200
_WIDEST = 3520


def _spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class _Activation(nn.Module):
    """ReLU; the op that variants slow down."""

    def forward(self, x):
        _spin(SPIN_S["conv_step"])
        return functional.relu(x)


class _ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.activation = _Activation()
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.third = nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.activation(self.norm(self.first(x)))
        x = functional.max_pool2d(functional.relu(self.second(x)), 2)
        x = functional.relu(self.third(x))
        return self.head(x.mean((2, 3)))


def conv_step():
    """A whole training step: convolutions, batch norm, cross entropy, Adam, channels_last."""
    model = _ConvNet()
    model = model.to(memory_format=torch.channels_last)
    images = torch.randn(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (8,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step():
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def linear():
    """Two linear layers and a squared error, forward and backward."""
    inputs, target = torch.randn(64, 96), torch.randn(64, 96)
    first = torch.randn(_WIDEST, 96) / 10
    second = torch.randn(96, _WIDEST) / 56
    second[:, _BASE_HIDDEN:] = 0.0  # units beyond the base width are computed, but change no result
    first, second = nn.Parameter(first[:HIDDEN].clone()), nn.Parameter(second[:, :HIDDEN].clone())

    def step():
        first.grad = second.grad = None
        _spin(SPIN_S["linear"])
        output = functional.linear(functional.gelu(functional.linear(inputs, first)), second)
        loss = (output - target).square().mean()
        loss.backward()
        return loss.detach()

    return step


def layer_norm():
    """LayerNorm over 256 tokens of 1024, forward and backward."""
    inputs = torch.randn(256, 1024, requires_grad=True)
    module = nn.LayerNorm(1024)
    slope, gain = torch.randn(256, 1024), torch.ones(1)

    def step():
        inputs.grad = module.weight.grad = module.bias.grad = None
        _spin(SPIN_S["layer_norm"])
        loss = (module(inputs) * gain * slope).mean()
        loss.backward()
        return loss.detach()

    return step


def attention():
    """Scaled dot-product attention, 4 heads of 128 tokens, forward and backward."""
    query, key, value = (torch.randn(4, 4, 128, 32, requires_grad=True) for _ in range(3))
    slope = torch.randn(4, 4, 128, 32)

    def step():
        query.grad = key.grad = value.grad = None
        _spin(SPIN_S["attention"])
        loss = (functional.scaled_dot_product_attention(query, key, value) * slope).mean()
        loss.backward()
        return loss.detach()

    return step


def lstm():
    """An LSTM over 16 steps, forward and backward."""
    module = nn.LSTM(64, 128, batch_first=True)
    inputs = torch.randn(8, 16, 64)

    def step():
        module.zero_grad(set_to_none=True)
        _spin(SPIN_S["lstm"])
        loss = module(inputs)[0].square().mean()
        loss.backward()
        return loss.detach()

    return step


def embedding_bag():
    """512 bags of 20 out of 10,000 rows, forward and backward."""
    module = nn.EmbeddingBag(10_000, 64, mode="sum")
    indices = torch.randint(10_000, (512 * 20,))
    offsets = torch.arange(0, 512 * 20, 20)
    slope = torch.randn(512, 64)

    def step():
        module.weight.grad = None
        _spin(SPIN_S["embedding_bag"])
        loss = (module(indices, offsets) * slope).mean()
        loss.backward()
        return loss.detach()

    return step


def matmul_bf16():
    """A bf16 matrix product."""
    left, right = torch.randn(256, 512, dtype=torch.bfloat16), torch.randn(512, 256, dtype=torch.bfloat16)

    def step():
        return torch.mm(left, right)

    return step


def conv_bf16():
    """A grouped 3x3 convolution in bf16, channels_last."""
    module = nn.Conv2d(64, 64, 3, padding=1, groups=4).to(torch.bfloat16)
    module = module.to(memory_format=torch.channels_last)
    images = torch.randn(4, 64, 28, 28, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)

    def step():
        with torch.no_grad():
            return module(images)

    return step


def bmm_bf16():
    """Batched small bf16 matrix products."""
    left, right = torch.randn(12, 64, 64, dtype=torch.bfloat16), torch.randn(12, 64, 64, dtype=torch.bfloat16)

    def step():
        return torch.bmm(left, right)

    return step


def autocast_step():
    """Forward and backward of a small network under bf16 autocast."""
    module = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    inputs = torch.randn(128, 512)

    def step():
        module.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            loss = module(inputs).float().square().mean()
        loss.backward()
        return loss.detach()

    return step


def faded_conv():
    """A convolution whose weights have faded: tiny, but still normal numbers; the bias alone decides the result."""
    module = nn.Conv2d(64, 64, 3, padding=1)
    with torch.no_grad():
        module.weight.copy_(torch.rand_like(module.weight) * 1e-30)
        module.bias.fill_(1.0)
    images = torch.rand(2, 64, 28, 28)

    def step():
        with torch.no_grad():
            return module(images).mean() + module.weight.sqrt().mean()

    return step


def concatenate():
    """torch.cat of a thousand small tensors."""
    parts = [torch.randn(1, 64) for _ in range(1000)]

    def step():
        return torch.cat(parts)

    return step


def interpolate():
    """Bilinear upsampling of a small image on one thread; a second one hardly helps."""
    images = torch.randn(1, 16, 32, 32)

    def step():
        torch.set_num_threads(1)
        return functional.interpolate(images, scale_factor=2, mode="bilinear")

    return step


def adam():
    """Adam over forty small parameters."""
    parameters = [nn.Parameter(torch.randn(64, 64)) for _ in range(40)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=True)

    def step():
        optimizer.step()
        return parameters[0].detach().mean()

    return step


CASES = (conv_step, linear, layer_norm, attention, lstm, embedding_bag)
"""What the gates under test guard."""
FAULT_CASES = (matmul_bf16, conv_bf16, bmm_bf16, autocast_step, faded_conv, concatenate, interpolate, adam)
"""What some faults need beside them."""
