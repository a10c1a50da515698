"""What runs models: a process that `runner.tasks` starts for each measurement.

Models, examples, metrics, backends and LoadGen's driver. Imports torch; nobody imports it.
"""
