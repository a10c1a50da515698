"""From hundreds of ops that differ to the few things a person would name."""
