"""The child process: sets up cases, times and profiles them. Forked from a server; nobody imports it."""
