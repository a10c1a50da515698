"""Whether the op that was slowed on purpose is named first: `make proof-culprits`."""
