"""Small networks for handwritten digits, which can be trained within a test."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class _Trained(nn.Module):
    """A classifier of images that learns by itself."""

    layers: nn.Sequential
    batch = 64

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images `(batch, 1, side, side)` to logits `(batch, 10)`."""
        logits: torch.Tensor = self.layers(images)
        return logits

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross entropy."""
        return functional.cross_entropy(self(images), labels)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=2e-3)


class DigitsCnn(_Trained):
    """Two convolutions and two linear layers for images of 8 × 8; 0.15 M parameters."""

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


class MnistCnn(_Trained):
    """Two convolutions and two linear layers for images of 28 × 28; 0.42 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 49, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
