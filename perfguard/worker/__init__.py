"""The child process: sets up cases, times and profiles them. Started as a process; nobody imports it."""
