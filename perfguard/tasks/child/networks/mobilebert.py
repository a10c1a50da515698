"""MobileBERT with a head for questions, MLPerf Mobile's language model."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_LAYERS, _HEADS, _FEED_FORWARDS = 24, 4, 4
_HIDDEN, _INNER, _FEED, _EMBEDDING = 512, 128, 512, 128
_WORDS, _POSITIONS, _SEGMENTS = 30522, 512, 2


class MobileBert(nn.Module):
    """24 narrow layers between bottlenecks, without layer norms; 24.58 M parameters.

    Source: Sun et al., MobileBERT, arXiv 2004.02984, table 1, and the checkpoint `bert/float` of MLPerf Mobile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, _EMBEDDING)
        self.positions = nn.Embedding(_POSITIONS, _HIDDEN)
        self.segments = nn.Embedding(_SEGMENTS, _HIDDEN)
        for table in (self.words, self.positions, self.segments):
            nn.init.normal_(table.weight, std=0.02)
        self.widen = nn.Linear(3 * _EMBEDDING, _HIDDEN)
        self.norm = _Affine(_HIDDEN)
        self.layers = nn.ModuleList(_EncoderLayer() for _ in range(_LAYERS))
        self.spans = nn.Linear(_HIDDEN, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Words, mask and segments, `(batch, 3, tokens)`, to logits of start and end, `(batch, tokens, 2)`."""
        words, counts, segments = tokens.unbind(dim=1)
        embedded = self.words(words)
        after, before = functional.pad(embedded[:, 1:], (0, 0, 0, 1)), functional.pad(embedded[:, :-1], (0, 0, 1, 0))
        widened = self.widen(torch.cat([after, embedded, before], dim=2))
        hidden = self.norm(widened + self.positions.weight[: tokens.shape[2]] + self.segments(segments))
        # As large as BF16 can add to logits without losing them.
        mask = (1 - counts[:, None, None, :].to(hidden.dtype)) * -10000.0
        for layer in self.layers:
            hidden = layer(hidden, mask)
        logits: torch.Tensor = self.spans(hidden)
        return logits


class _Affine(nn.Module):
    """A factor and an offset for each feature, in place of a layer norm."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * self.weight + self.bias


class _FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.widen, self.narrow, self.norm = nn.Linear(_INNER, _FEED), nn.Linear(_FEED, _INNER), _Affine(_INNER)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(self.narrow(functional.relu(self.widen(values))) + values)
        return result


class _EncoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input, self.input_norm = nn.Linear(_HIDDEN, _INNER), _Affine(_INNER)
        self.shared, self.shared_norm = nn.Linear(_HIDDEN, _INNER), _Affine(_INNER)
        self.query, self.key = nn.Linear(_INNER, _INNER), nn.Linear(_INNER, _INNER)
        self.value = nn.Linear(_HIDDEN, _INNER)
        self.attended, self.attended_norm = nn.Linear(_INNER, _INNER), _Affine(_INNER)
        self.feed_forwards = nn.Sequential(*(_FeedForward() for _ in range(_FEED_FORWARDS)))
        self.output, self.output_norm = nn.Linear(_INNER, _HIDDEN), _Affine(_HIDDEN)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Values `(batch, tokens, 512)` and what is added to the logits of attention, to values."""
        narrow, shared = self.input_norm(self.input(hidden)), self.shared_norm(self.shared(hidden))
        query, key = _heads(self.query(shared)), _heads(self.key(shared))
        weights = torch.softmax(query @ key.transpose(-1, -2) / (_INNER // _HEADS) ** 0.5 + mask, dim=-1)
        found = (weights @ _heads(self.value(hidden))).transpose(1, 2).flatten(2)
        narrow = self.attended_norm(self.attended(found) + narrow)
        result: torch.Tensor = self.output_norm(self.output(self.feed_forwards(narrow)) + hidden)
        return result


def _heads(values: torch.Tensor) -> torch.Tensor:
    """`(batch, tokens, 128)` to `(batch, heads, tokens, 32)`."""
    return values.unflatten(2, (_HEADS, _INNER // _HEADS)).transpose(1, 2)
