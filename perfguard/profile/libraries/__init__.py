"""Reads the logs of oneDNN and MKL and joins their calls with ops. Pure; entered by the rest of `profile`."""
