"""Whether the shape of each of the paper's results holds here: facts with codes and numbers, from evidence alone.

A claim about shares of one profile is decided by its numbers. A claim about times is decided by an interval over fresh
processes: it holds where the whole interval lies beyond the limit, fails where it lies on the other side, and is open
where the interval holds the limit. Pure: evidence and paper in, shapes out.
"""
