"""Language models: a BERT-style encoder with a masked-language-model head, and an LSTM.

Source of BERT: Devlin et al., arXiv 1810.04805: learned positions, post-norm layers, GELU, output weights tied to the
embeddings; the head reads the masked positions only, as the MLPerf reference does.
Source of the LSTM: Zaremba et al., arXiv 1409.2329, as in PyTorch's `word_language_model` example.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD_DIM = 64  # Width of one attention head in every published size of BERT
BERT_DROPOUT = 0.1  # Dropout on the embeddings and on both branches of a layer
LSTM_DROPOUT = 0.2  # Dropout on the embeddings, between the layers and before the decoder


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection and layer norm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.heads = max(1, hidden // HEAD_DIM)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden)
        self.expand = nn.Linear(hidden, 4 * hidden)
        self.contract = nn.Linear(4 * hidden, hidden)
        self.output_norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(BERT_DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape: (batch, sequence, hidden)."""
        x = self.attention_norm(x + self.dropout(self._attention(x)))
        fed = self.contract(functional.gelu(self.expand(x)))
        return self.output_norm(x + self.dropout(fed))

    def _attention(self, x: Tensor) -> Tensor:
        batch, sequence, hidden = x.shape
        qkv = self.qkv(x).view(batch, sequence, 3, self.heads, hidden // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        # Without dropout on the weights: with it PyTorch leaves its fused kernel.
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.projection(mixed.transpose(1, 2).reshape(batch, sequence, hidden))


class MaskedLanguageModel(nn.Module):
    """Embeddings, encoder and the prediction of masked tokens."""

    def __init__(self, *, hidden: int, layers: int, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(sequence, hidden)
        self.embedding_norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(BERT_DROPOUT)
        self.layers = nn.Sequential(*(EncoderLayer(hidden) for _ in range(layers)))
        self.transform = nn.Linear(hidden, hidden)
        self.transform_norm = nn.LayerNorm(hidden)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.apply(_initialise)

    def forward(self, tokens: Tensor, masked: Tensor) -> Tensor:
        """Logits (masked positions, vocabulary) for token ids (batch, sequence), masked being flat indices."""
        embedded = self.tokens(tokens) + self.positions.weight
        encoded = self.layers(self.dropout(self.embedding_norm(embedded)))
        picked = encoded.flatten(0, 1)[masked]
        transformed = self.transform_norm(functional.gelu(self.transform(picked)))
        return functional.linear(transformed, self.tokens.weight, self.bias)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


class LSTMLanguageModel(nn.Module):
    """Embedding, stacked LSTM and a decoder over the vocabulary."""

    def __init__(self, *, hidden: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(LSTM_DROPOUT)
        self.encoder = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=layers, dropout=LSTM_DROPOUT if layers > 1 else 0.0)
        self.decoder = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (sequence·batch, vocabulary) for token ids (sequence, batch), from a zero state."""
        output, _ = self.lstm(self.dropout(self.encoder(tokens)))
        return self.decoder(self.dropout(output)).flatten(0, 1)
