"""Gates on many machines: work is split into shards, and each is measured whole on one host.

`shards` is the protocol; `queue` and `slurm` bring shards to hosts, `tending` hands out anew what was lost. Front ends
may enter.
"""
