"""What GitHub has beside git: workflow commands, events, untrusted artifacts, and its API."""
