"""Rules that turn a profile into advice with its evidence, one module for each; `registry` applies them all."""
