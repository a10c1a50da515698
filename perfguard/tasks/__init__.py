"""Tasks in the manner of MLPerf Mobile: models with data, scenarios and quality targets; their files, logs and rules.

Nothing here imports torch but `child`, which runs models in a process of its own. `runner` and everything above it may
enter.
"""
