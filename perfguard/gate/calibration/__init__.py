"""Error rates of a machine's gates, from gates of identical arms. Entered by the rest of `gate`."""
