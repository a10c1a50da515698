"""The proof that perfguard's gate can be trusted, against its peers: `python -m tests.proof.gates_against_peers`."""
