"""Which cases there are: the built-in ones and those of other tools' suites.

Entered by front ends and by whoever selects cases.
"""
