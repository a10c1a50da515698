"""Copied to the root of the worker bundle and started as a script: `python start.py MODULE ARGUMENT…`.

A script puts its own directory first on the import path; `python -m` would put the working directory there, which is
the tree under test, and that may hold a perfguard or pyperf of its own.
"""

import runpy
import sys

if __name__ == "__main__":
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
