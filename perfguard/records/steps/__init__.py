"""What a training step executes: ops, op counts, profiles, projections. Written by `profile`, read by everybody."""
