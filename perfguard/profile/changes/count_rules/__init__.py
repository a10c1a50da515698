"""Rules that turn two counts of a step into few facts, each with one cause; one rule, one module.

A rule takes from the `Residue` what it explains and gives facts. Causes come before effects: a lost memory format
before the reorders that it brings. The last rules take whatever is left, so that no difference goes untold. Every rule
is symmetric: with the censuses exchanged it finds the same facts, told the other way round.
"""
