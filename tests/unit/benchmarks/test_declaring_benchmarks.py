"""The decorator refuses what a worker could not find again."""

import pytest

import perfguard
from perfguard.errors import ConfigError


def test_a_factory_inside_a_function_is_refused_with_the_way_out() -> None:
    def inner():
        return lambda: 1.0

    with pytest.raises(ConfigError, match="define its factory at module level"):
        perfguard.benchmark(name="declared.inside")(inner)


def test_a_name_that_is_given_by_position_is_refused():
    with pytest.raises(ConfigError, match="name='train'"):
        perfguard.benchmark("train")
