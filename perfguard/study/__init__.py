"""Published studies measured again: evidence collected part by part, beside the paper's figures, and what holds here.

Front ends and `report` may enter. The report is a pure function of the evidence and the paper's figures.
"""
