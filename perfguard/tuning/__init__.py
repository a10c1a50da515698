"""`perfguard tune`: which settings make a step faster, tried one by one in paired runs.

`search` decides what to try next and measures nothing. `tune` measures what it asks for, within the budget, and keeps
each outcome in a journal. What a setting is and how it is measured is a `Target`'s: `case` has that of a case.
"""
