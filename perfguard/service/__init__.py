"""`perfguard serve`: a read-only JSON API and pages over the history, and the way in for runs of other machines.

`answers` computes what the API gives, `app` binds it to addresses; `assets` holds uPlot as its authors made it. The
command line may enter.
"""
