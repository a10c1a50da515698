"""A small training script, for tests of what is done with scripts from outside."""

TRAIN = """
import os
import sys

import torch
from torch import nn

network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4))
if "own" in sys.argv:
    network = network.to(memory_format=torch.channels_last)
own = {"fused": True} if "own" in sys.argv else {}
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, **own)
labels = torch.tensor([0, 1, 2, 3])
for _ in range(int(sys.argv[1])):
    images = torch.rand(4, 3, 8, 8)
    if "unseeded" in sys.argv:
        images *= 1 + os.urandom(1)[0] / 256
    loss = nn.functional.cross_entropy(network(images), labels)
    optimizer.zero_grad()
    (loss * float(os.environ.get("FACTOR", "1"))).backward()
    if "plain" not in sys.argv:
        optimizer.step()
"""
"""Its arguments: how many steps; `own` makes the choices that settings would make, `unseeded` draws what no seed
decides, `plain` updates nothing. `FACTOR` in its environment multiplies the loss."""
MANY = "1000000"  # Steps; more than anybody waits for
