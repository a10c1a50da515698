"""Training steps: model, loss and optimizer, one module each."""
