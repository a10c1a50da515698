"""How fast a step could be: replayed problems, rooflines. Pure; entered by `profile.runs`."""
