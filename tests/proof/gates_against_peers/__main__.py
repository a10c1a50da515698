"""The command line of the proof: `python -m tests.proof.gates_against_peers SUB-COMMAND`."""

from __future__ import annotations

import sys

from tests.proof.gates_against_peers.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
