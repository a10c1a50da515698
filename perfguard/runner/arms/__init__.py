"""The two sides of a comparison: from text such as `git:main` to an environment that can be started.

Entered by the rest of `runner` and by callers that name arms.
"""
