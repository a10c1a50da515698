"""Simulations count no coverage: tracing them doubles their time, and the unit tests reach every line."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "/statistical/" in item.nodeid:
            item.add_marker(pytest.mark.no_cover)
