"""The schemas in the package are what the code writes; `make schemas` writes them anew."""

import json
import math
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

import perfguard
from perfguard.cli.commands import describe
from perfguard.codec import to_builtins
from perfguard.recordings import SCHEMAS, schema_of
from tests.changed_values import replace
from tests.finding_evidence import comparison, delta, op

FOLDER = Path(perfguard.__file__).parent / "schemas"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_up_to_date_and_valid(name: str) -> None:
    published = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert published == json.loads(json.dumps(schema_of(name)))
    Draft202012Validator.check_schema(published)


def test_every_published_schema_is_of_something_that_is_written() -> None:
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.json")} == set(SCHEMAS) == set(describe.SCHEMAS)


@pytest.mark.parametrize("name", ["result", "events"])
def test_an_interval_whose_ends_are_unknown_fits_as_null(name: str) -> None:
    unknown = {"lower_s": -math.inf, "upper_s": math.inf}
    found = comparison(replace(delta(op("mm", 1), times=2), **unknown))
    found = replace(found, balance=replace(found.balance, **unknown))
    validator = Draft202012Validator({"$defs": schema_of(name)["$defs"], "$ref": "#/$defs/Attribution"})
    written = to_builtins(found)
    assert written["deltas"][0]["lower_s"] is None
    validator.validate(written)
    with pytest.raises(ValidationError):
        validator.validate({**written, "processes": None})
