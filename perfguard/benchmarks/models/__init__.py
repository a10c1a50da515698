"""Model definitions that the training steps use."""
