"""Training steps of language models: a BERT-style encoder and an LSTM."""

from __future__ import annotations

import torch
from torch.nn import functional

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.networks.language import LSTMLanguageModel, MaskedLanguageModel
from perfguard.benchmarks.shared import integers
from perfguard.benchmarks.steps.training import training_step

MASKED_SHARE = 0.15
"""Share of the tokens that BERT predicts."""


def bert(
    *, layers: int, hidden: int, sequence: int, batch: int, dtype: str, mode: str, vocabulary: int = 8192
) -> Timed:
    """Masked-language-model training with AdamW.

    The vocabulary is smaller than BERT's 30,522, so that the encoder and not the embedding table dominates
    the small sizes.
    """
    tokens = integers(vocabulary, batch, sequence)
    masked = torch.randperm(batch * sequence)[: round(MASKED_SHARE * batch * sequence)]
    labels = integers(vocabulary, masked.numel())
    model = MaskedLanguageModel(hidden=hidden, layers=layers, sequence=sequence, vocabulary=vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    return training_step(
        model, optimizer, lambda net: functional.cross_entropy(net(tokens, masked), labels), dtype=dtype, mode=mode
    )


def lstm_lm(
    *, layers: int, hidden: int, sequence: int, batch: int, dtype: str, mode: str, vocabulary: int = 4096
) -> Timed:
    """Next-token training with SGD and gradients clipped to norm 0.25; the last token predicts the first."""
    tokens = integers(vocabulary, sequence, batch)
    labels = tokens.roll(-1, dims=0).flatten()
    model = LSTMLanguageModel(hidden=hidden, layers=layers, vocabulary=vocabulary)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return training_step(
        model,
        optimizer,
        lambda net: functional.cross_entropy(net(tokens), labels),
        dtype=dtype,
        mode=mode,
        clip_norm=0.25,
    )
