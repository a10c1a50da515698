"""Where records live: baselines in git and run folders."""
