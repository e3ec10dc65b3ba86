"""The published JSON Schemas are those of the code, and the published manifests follow them."""

import json
from pathlib import Path

import pytest

from tokenmill_core.schemas import SUFFIX, manifest_types, schema_files, write_schemas

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "manifests/schemas"
SAMPLES = sorted(path for path in (ROOT / "manifests/sample/data").rglob("*.json") if b'"digest"' in path.read_bytes())


def test_the_published_schemas_are_current(tmp_path):
    written = {path.name: path.read_bytes() for path in write_schemas(tmp_path)}
    assert written == schema_files()
    published = {path.name: path.read_bytes() for path in SCHEMAS.iterdir()}
    assert published == written, "run `make schemas` and look at what changed"
    assert set(published) == {kind + SUFFIX for kind in manifest_types()}


TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}


def problems(value, schema, root, where="manifest"):
    """The part of JSON Schema that ours use, by hand: no dependency for one test."""
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    if "anyOf" in schema:
        found = [problems(value, option, root, where) for option in schema["anyOf"]]
        return [] if [] in found else found[0]
    if not isinstance(value, TYPES.get(schema.get("type"), object)):
        return [f"{where}: not of type {schema['type']}"]
    found = [f"{where}: not {schema['const']}"] if value != schema.get("const", value) else []
    found += [f"{where}: not in the enum"] if value not in schema.get("enum", [value]) else []
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{where}: {key} is missing" for key in schema.get("required", ()) if key not in value]
        for key, child in value.items():
            known = key in schema["properties"]
            found += (
                problems(child, schema["properties"][key], root, f"{where}.{key}") if known else [f"{where}: {key}?"]
            )
    if isinstance(value, list):
        for index, child in enumerate(value):
            found += problems(child, schema["items"], root, f"{where}.{index}")
    return found


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_published_manifest_follows_its_schema(path):
    manifest = json.loads(path.read_bytes())
    schema = json.loads((SCHEMAS / (manifest["kind"] + SUFFIX)).read_bytes())
    assert problems(manifest, schema, schema) == []
    assert problems(manifest | {"surprise": 1}, schema, schema)
    assert problems({key: value for key, value in manifest.items() if key != "counts"}, schema, schema)
    assert problems(manifest | {"kind": "other"}, schema, schema)


def test_there_are_samples_of_the_kinds_that_data_passes_through():
    kinds = {json.loads(path.read_bytes())["kind"] for path in SAMPLES}
    assert kinds >= {"documents", "tokenizer", "tokens", "mixture"}
