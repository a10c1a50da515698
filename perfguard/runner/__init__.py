"""The parent of the workers: arms, schedule, isolation, executor, and the measuring loop."""
