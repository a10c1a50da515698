"""An LSTM language model.

Source: Zaremba et al., arXiv 1409.2329, as in PyTorch's `word_language_model` example.
"""

from __future__ import annotations

from torch import Tensor, nn

DROPOUT = 0.2
"""Dropout on the embeddings, between the layers and before the decoder."""


class LSTMLanguageModel(nn.Module):
    """Embedding, stacked LSTM and a decoder over the vocabulary."""

    def __init__(self, *, hidden: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(DROPOUT)
        self.encoder = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=layers, dropout=DROPOUT if layers > 1 else 0.0)
        self.decoder = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (sequence·batch, vocabulary) for token ids (sequence, batch), from a zero state."""
        output, _ = self.lstm(self.dropout(self.encoder(tokens)))
        logits: Tensor = self.decoder(self.dropout(output))
        return logits.flatten(0, 1)
