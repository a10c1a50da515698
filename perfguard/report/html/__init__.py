"""Runs as one HTML file that needs no network, and as pages of a static site: `RunContent -> text`."""
