"""Events, comments and proposed baselines on GitHub. Entered by `perfguard github`."""
