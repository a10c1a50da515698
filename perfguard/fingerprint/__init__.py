"""Who ran it: the CPU, its topology, its state and the software stack."""
