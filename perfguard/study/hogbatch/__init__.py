"""`perfguard study hogbatch`: algorithms of heterogeneous training side by side, and the paper's claims about them."""
