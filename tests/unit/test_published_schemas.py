"""The schemas in the package are what the code writes; `make schemas` writes them anew."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import perfguard
from perfguard.codec import schema_of

SCHEMAS = Path(perfguard.__file__).parent / "schemas"


@pytest.mark.parametrize("name", ["result", "events", "fingerprint"])
def test_the_published_schema_is_up_to_date_and_valid(name: str) -> None:
    published = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert published == json.loads(json.dumps(schema_of(name)))
    Draft202012Validator.check_schema(published)
