"""A public class has a name that no other class of perfguard has."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.made_facts import modules


def test_each_public_class_name_stands_once():
    places = defaultdict(list)
    for name, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
