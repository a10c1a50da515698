"""From measurements to verdicts: compare, then judge by a policy."""
