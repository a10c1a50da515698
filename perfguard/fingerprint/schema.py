"""The published JSON schema of a fingerprint, generated from the model."""

from __future__ import annotations

import json

from perfguard.model.machine import Fingerprint


def fingerprint_schema() -> str:
    """JSON Schema (2020-12) of `perfguard fingerprint --json`, as it stands in `perfguard/schemas`."""
    import msgspec

    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "perfguard fingerprint",
        **msgspec.json.schema(Fingerprint),
    }
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
