"""The terminal user interface: watch a run, drill down to the op, browse history.

A reader and nothing more: it shows what `perfguard.watch.view.watching` says of a run. textual is imported only below
this package, and only by `launch.run_app`.
"""
