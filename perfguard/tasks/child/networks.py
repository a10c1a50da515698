"""Built-in architectures."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class DigitsCnn(nn.Module):
    """Two convolutions and two linear layers for images of 8 × 8; 0.3 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 16, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images `(batch, 1, 8, 8)` to logits `(batch, 10)`."""
        logits: torch.Tensor = self.layers(images)
        return logits

    def train_on(self, images: torch.Tensor, labels: torch.Tensor, epochs: int = 12, batch: int = 64) -> None:
        """Train with Adam, in an order drawn by torch's seed."""
        optimizer = torch.optim.Adam(self.parameters(), lr=2e-3)
        self.train()
        for _ in range(epochs):
            for chosen in torch.randperm(len(images)).split(batch):
                optimizer.zero_grad()
                functional.cross_entropy(self(images[chosen]), labels[chosen]).backward()
                optimizer.step()


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {"digits_cnn": DigitsCnn}
"""By the name that task files use."""
