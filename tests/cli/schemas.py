"""A checker for the published JSON schemas: the part of the language that they use.

A word of the language that it does not know is an error, so that nothing passes unchecked.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parents[2] / "schema"

ANNOTATIONS = {"$schema", "$defs", "title", "description", "default"}
CHECKED = {
    "$ref", "type", "const", "properties", "required", "additionalProperties", "items",
    "prefixItems", "minItems", "maxItems", "oneOf", "anyOf", "minimum", "format",
}  # fmt: skip

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
    "null": type(None),
}


class SchemaError(AssertionError):
    """A value that is not what the schema says."""


@cache
def load(name: str) -> dict[str, Any]:
    """A published schema."""
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    return schema


def check(name: str, value: Any) -> None:
    """Raise SchemaError unless the value is what the schema of this name says."""
    _check(load(name), load(name), value, name)


def check_each(name: str, values: Any) -> None:
    """A list, and every item of it."""
    assert isinstance(values, list)
    for value in values:
        check(name, value)


def _fits_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _check(whole: dict[str, Any], schema: Any, value: Any, at: str) -> None:
    if schema is True:
        return
    if schema is False:
        raise SchemaError(f"{at}: nothing is allowed here")
    unknown = set(schema) - ANNOTATIONS - CHECKED
    if unknown:
        raise SchemaError(f"{at}: this checker does not know {sorted(unknown)}")
    if "$ref" in schema:
        _check(whole, whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, at)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_fits_type(value, name) for name in types):
        raise SchemaError(f"{at}: {value!r} is no {' or '.join(types)}")
    if "const" in schema and value != schema["const"]:
        raise SchemaError(f"{at}: {value!r} is not {schema['const']!r}")
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        raise SchemaError(f"{at}: {value!r} is below {schema['minimum']}")
    _check_choice(whole, schema, value, at)
    if isinstance(value, dict):
        _check_object(whole, schema, value, at)
    if isinstance(value, list):
        _check_array(whole, schema, value, at)


def _check_choice(whole: dict[str, Any], schema: Any, value: Any, at: str) -> None:
    for word in ("oneOf", "anyOf"):
        problems = []
        for option in schema.get(word, []):
            try:
                _check(whole, option, value, at)
            except SchemaError as error:
                problems.append(str(error))
        fitting = len(schema.get(word, [])) - len(problems)
        if word in schema and (fitting == 0 or (word == "oneOf" and fitting > 1)):
            raise SchemaError(f"{at}: {fitting} of the alternatives fit: {'; '.join(problems)}")


def _check_object(whole: dict[str, Any], schema: Any, value: dict[str, Any], at: str) -> None:
    missing = set(schema.get("required", [])) - set(value)
    if missing:
        raise SchemaError(f"{at}: {sorted(missing)} is missing")
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for key, inner in value.items():
        _check(whole, properties.get(key, others), inner, f"{at}.{key}")


def _check_array(whole: dict[str, Any], schema: Any, value: list[Any], at: str) -> None:
    first = schema.get("prefixItems", [])
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        raise SchemaError(f"{at}: {len(value)} items")
    for index, inner in enumerate(value):
        of_item = first[index] if index < len(first) else schema.get("items", True)
        _check(whole, of_item, inner, f"{at}[{index}]")
