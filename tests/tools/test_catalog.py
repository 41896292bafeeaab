"""The merged tool list, built from lists of tools without a service."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp.shared.inbound import find_invalid_x_mcp_header

from statehold.sessions.json_codec import JSON
from statehold.sessions.services import ToolSpec
from statehold.tools.catalog import Catalog, Naming, Offer, repair_definition
from statehold.tools.tool_names import describe_renames


def spec(name: str, schema: Any = None, **more: Any) -> ToolSpec:
    definition = {"name": name, "inputSchema": schema or {"type": "object"}, **more}
    return ToolSpec(name, definition)


def of(*tools: ToolSpec, naming: Naming = "explicit", header: bool = False) -> list[JSON]:
    return Catalog([Offer("service", tools)], naming=naming, header=header).definitions


def list_specs(*names: str) -> list[ToolSpec]:
    return [spec(name) for name in names]


@pytest.mark.parametrize("naming", ["explicit", "auto", "pinned"])
@pytest.mark.parametrize(
    "schema", [{"type": "object"}, {"type": "object", "$ref": "#/$defs/a"}, None]
)
def test_every_tool_has_properties(naming: Naming, schema: Any) -> None:
    definition = of(ToolSpec("t", {"name": "t", "inputSchema": schema}), naming=naming)[0]
    assert isinstance(definition["inputSchema"]["properties"], dict)


def test_all_tools_of_a_service_have_one_session_argument() -> None:
    own = spec("own", {"type": "object", "properties": {"session_id": {}}})
    odd = spec("odd", {"type": "object", "properties": {"statehold_session_id": {}}})
    offers = [
        Offer("one", [spec("a"), own, odd]),
        Offer("two", [spec("b")]),
        Offer("three", [own], exclude=["own"]),
    ]
    catalog = Catalog(offers)
    arguments = {name: entry.session_argument for name, entry in catalog.entries.items()}
    third = "statehold_session_id_2"
    assert arguments == {"a": third, "own": third, "odd": third, "b": "session_id"}
    accepts = {name for name, entry in catalog.entries.items() if entry.accepts_session_id}
    assert accepts == {"a", "odd"}


def test_only_a_request_for_them_gets_the_services_of_the_tools() -> None:
    catalog = Catalog(
        [Offer("a", [spec("x"), spec("y", _meta={"own": 1})])], [{"name": "own", "inputSchema": {}}]
    )
    assert [tool.get("_meta") for tool in catalog.definitions] == [None, None, {"own": 1}]
    asked = [tool.get("_meta") for tool in catalog.with_services(catalog.definitions)]
    assert asked == [None, {"statehold/service": "a"}, {"own": 1, "statehold/service": "a"}]


def test_the_definition_of_a_service_is_not_changed() -> None:
    tool = spec("t", {"type": "object", "properties": {"a": {}}, "required": ["a"]})
    before = repr(tool)
    of(tool)
    assert repr(tool) == before


OWN: JSON = {"type": "object", "properties": {"session_id": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": OWN}},
        {
            "$ref": "#/$defs/A",
            "$defs": {"A": {"allOf": [{"$ref": "#/$defs/B"}], "$ref": "#"}, "B": OWN},
        },
        {"allOf": [{"required": ["session_id"]}]},
        {"anyOf": [{"oneOf": [OWN]}]},
        {"if": {}, "then": OWN},
        {"required": ["session_id"]},
    ],
)
def test_an_argument_that_is_not_at_the_root_keeps_its_name(schema: JSON) -> None:
    catalog = Catalog([Offer("service", [spec("t", schema)])])
    assert catalog.entries["t"].session_argument == "statehold_session_id"
    listed_schema = catalog.definitions[0]["inputSchema"]
    assert list(listed_schema["properties"]) == ["statehold_session_id"]
    assert listed_schema["required"] == ["statehold_session_id", *schema.get("required", [])]
    Draft202012Validator.check_schema(listed_schema)


CLOSED: JSON = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}


NARROW: list[JSON] = [
    {"oneOf": [CLOSED, {**CLOSED, "required": ["b"]}]},
    {"allOf": [{**CLOSED, "maxProperties": 1}]},
    {"anyOf": [{"allOf": [CLOSED]}]},
    {"$ref": "#/$defs/A", "$defs": {"A": CLOSED}},
    {"allOf": [{"properties": {"a": {}}, "unevaluatedProperties": False}]},
    {"additionalProperties": {"type": "integer"}},
    {**CLOSED, "maxProperties": 1},
    {"maxProperties": 1, "propertyNames": {"pattern": "^[a-c]$"}},
    {"allOf": [{"propertyNames": {"maxLength": 3}}]},
]


@pytest.mark.parametrize("schema", NARROW)
@pytest.mark.parametrize("naming", ["explicit", "auto"])
def test_arguments_that_a_tool_accepts_are_accepted_with_the_session(
    schema: JSON, naming: Naming
) -> None:
    schema = {"type": "object", **schema}
    judge: Any = Draft202012Validator
    assert judge(schema).is_valid({"a": 1})
    validator = judge(of(spec("t", schema), naming=naming)[0]["inputSchema"])
    assert validator.is_valid({"session_id": "s", "a": 1})
    assert not validator.is_valid({"session_id": "s", "a": "x", "other": "y"})


def test_a_boolean_schema_of_an_argument_is_spelled_out() -> None:
    schema = {"type": "object", "properties": {"any": True, "none": False}}
    listed_schema = of(spec("t", schema), naming="pinned")[0]["inputSchema"]
    assert listed_schema["properties"] == {"any": {}, "none": {"not": {}}}


def test_a_tool_may_have_arguments_of_both_our_names() -> None:
    own_names = ["session_id", "statehold_session_id", "statehold_session_id_2"]
    schema: JSON = {"type": "object", "properties": {name: {} for name in own_names}}
    catalog = Catalog([Offer("service", [spec("t", schema)])])
    assert catalog.entries["t"].session_argument == "statehold_session_id_3"
    listed_schema = catalog.definitions[0]["inputSchema"]
    assert list(listed_schema["properties"]) == ["statehold_session_id_3", *own_names]


def test_an_argument_required_twice_is_required() -> None:
    listed_schema = of(spec("t", {"type": "object", "required": ["a", "a"]}))[0]["inputSchema"]
    assert listed_schema["required"] == ["session_id", "a"]


@pytest.mark.parametrize("naming", ["explicit", "auto", "pinned"])
def test_an_argument_of_a_service_is_not_sent_in_our_header(naming: Naming) -> None:
    theirs = {"type": "string", "x-mcp-header": "session-ID"}
    other = {"type": "string", "x-mcp-header": "Region"}
    own_schema = {"type": "object", "properties": {"key": theirs, "region": other}}
    listed_schema = of(spec("t", own_schema), naming=naming, header=True)[0]["inputSchema"]
    assert "x-mcp-header" not in listed_schema["properties"]["key"]
    assert listed_schema["properties"]["region"] == other
    assert find_invalid_x_mcp_header(listed_schema) is None
    if naming != "pinned":
        assert listed_schema["properties"]["session_id"]["x-mcp-header"] == "Session-Id"


def test_prefix_include_and_exclude_choose_and_rename(caplog: pytest.LogCaptureFixture) -> None:
    offer = Offer(
        "s", list_specs("a", "b", "c"), prefix="p.", include=["a", "b", "z"], exclude=("b",)
    )
    with caplog.at_level(logging.WARNING):
        catalog = Catalog([offer])
    assert list(catalog.entries) == ["p.a"]
    assert catalog.entries["p.a"].tool == "a"
    assert "'z'" in caplog.text


@pytest.mark.parametrize(
    ("offers", "own", "names"),
    [
        (
            [Offer("one", list_specs("t")), Offer("two", list_specs("t", "u"))],
            [],
            ["t", "two_t", "u"],
        ),
        (
            [Offer("one", list_specs("t"), prefix="a_"), Offer("two", list_specs("a_t"))],
            [],
            ["a_t", "two_a_t"],
        ),
        ([Offer("two", list_specs("t"), prefix="p_")], ["p_t"], ["p_t", "two_p_t"]),
        (
            [
                Offer("one", list_specs("two_t", "t")),
                Offer("two", list_specs("t", "two_t", "two_t_2")),
            ],
            [],
            ["two_t", "t", "two_t_3", "two_two_t", "two_t_2"],
        ),
        (
            [Offer("one", list_specs("t")), Offer("my server", list_specs("t"))],
            [],
            ["t", "my_server_t"],
        ),
        (
            [
                Offer("one", list_specs("t")),
                Offer("two", list_specs("t")),
                Offer("three", list_specs("t")),
            ],
            [],
            ["t", "two_t", "three_t"],
        ),
    ],
)
def test_a_later_tool_of_the_same_name_gets_the_name_of_its_service_in_front(
    offers: list[Offer], own: list[str], names: list[str]
) -> None:
    catalog = Catalog(offers, [{"name": name, "inputSchema": {}} for name in own])
    assert [tool["name"] for tool in catalog.definitions] == names
    for rename in catalog.renames:
        entry = catalog.entries[rename.name]
        assert (entry.service, entry.tool) == (
            rename.service,
            rename.original_name.removeprefix("p_"),
        )


def test_renamed_tools_are_listed_in_one_line() -> None:
    many = [f"t{number}" for number in range(8)]
    own: list[JSON] = [{"name": "t0", "inputSchema": {}}]
    catalog = Catalog([Offer("one", list_specs(*many[1:])), Offer("two", list_specs(*many))], own)
    line = describe_renames(catalog.renames)
    assert "\n" not in line
    assert "Statehold itself, one had these names first: t0 is two_t0, t1 is two_t1" in line
    assert "and 3 more; prefix in [services.two]" in line


@pytest.mark.parametrize("name", ["", "has space", "x" * 129, "naïve", "a\nb", None, 5])
def test_a_tool_without_a_usable_name_is_dropped(name: Any) -> None:
    assert repair_definition({"name": name, "inputSchema": {"type": "object"}}, "s") is None


PARTLY_BROKEN: list[tuple[JSON, JSON]] = [
    (
        {"properties": {"a": {"type": "nonsense"}, "b": {"type": "string"}}},
        {"properties": {"a": {}, "b": {"type": "string"}}},
    ),
    (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"a": {"type": "array", "items": [{}]}, "b": {"$ref": "#/$defs/B"}},
            "required": ["b", 5],
            "patternProperties": 5,
            "$defs": {"B": {"type": "integer"}},
        },
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"a": {"type": "array"}, "b": {"$ref": "#/$defs/B"}},
            "required": ["b"],
            "$defs": {"B": {"type": "integer"}},
        },
    ),
    ({"allOf": 5, "required": ["a"]}, {"required": ["a"]}),
    (
        {
            "properties": {
                "a": {
                    "type": "object",
                    "description": "d",
                    "enum": 5,
                    "properties": {"in": {"type": "no", "enum": ["x"]}, "properties": {}},
                    "required": ["in", 5],
                },
                "b": {"anyOf": [{"type": 5, "title": "t"}, 7, {"pattern": "[^]"}]},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
        {
            "properties": {
                "a": {
                    "type": "object",
                    "description": "d",
                    "properties": {"in": {"enum": ["x"]}, "properties": {}},
                    "required": ["in"],
                },
                "b": {"anyOf": [{"title": "t"}, {}, {"pattern": "[^]"}]},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
    ),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"l": {"type": "array", "items": {"type": "no", "enum": [1]}}},
        },
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"l": {"type": "array", "items": {"enum": [1]}}},
        },
    ),
    (
        {
            "properties": {"n": {"minimum": 0, "exclusiveMinimum": True}, "b": {"type": "no"}},
            "$schema": 5,
        },
        {"properties": {"n": {"minimum": 0, "exclusiveMinimum": True}, "b": {}}},
    ),
    ({"type": ["object", "null"], "properties": {"a": {}}}, {"properties": {"a": {}}}),
]


@pytest.mark.parametrize(("schema", "valid_part"), PARTLY_BROKEN)
def test_the_valid_part_of_a_broken_input_schema_is_listed(schema: JSON, valid_part: JSON) -> None:
    listed_schema = repair_definition({"name": "t", "inputSchema": schema}, "s")
    assert listed_schema is not None
    assert listed_schema["inputSchema"] == {"type": "object", **valid_part}


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"pair": {"type": "array", "items": [{"type": "number"}]}},
            "definitions": {"x": {}},
        },
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
        },
        {"properties": {"pair": {"type": "array", "items": [{"type": "number"}]}}},
        {"properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}},
        {"properties": {"p": {"type": "string", "pattern": r"^[\w-.]\p{L}(?<n>[^])\u{1F600}$"}}},
        {"patternProperties": {r"^\p{Lu}": {}, "(": {"type": "string"}}},
        {"$schema": "https://example.org/of-our-own", "properties": {"n": {}}},
    ],
)
def test_a_schema_of_an_older_dialect_passes_as_it_is(schema: JSON) -> None:
    definition: JSON = {
        "name": "t",
        "inputSchema": {"type": "object", **schema},
        "outputSchema": {"type": "object", **schema},
    }
    assert repair_definition(definition, "s") == definition


def test_a_valid_definition_passes_as_it_is() -> None:
    definition: JSON = {
        "name": "t",
        "title": "T",
        "description": "d",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}, "any": {}, "none": {"default": None}},
            "$defs": {"A": {"oneOf": [{"type": "string"}, {"type": "null"}]}},
            "additionalProperties": False,
            "x-own": {"kept": [1]},
        },
        "outputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True, "own": 1},
        "icons": [{"src": "https://example.org/i.png"}],
        "_meta": {"ui": {"resourceUri": "ui://x"}},
        "unknown": "kept",
    }
    assert repair_definition(definition, "s") == definition


@pytest.mark.parametrize(
    ("part", "malformed"),
    [
        ("annotations", {"readOnlyHint": "perhaps"}),
        ("icons", "none"),
        ("title", 5),
        ("description", ["d"]),
        ("_meta", "m"),
        ("outputSchema", {"type": 5}),
        ("outputSchema", "s"),
        ("execution", {"taskSupport": "required"}),
    ],
)
def test_a_broken_part_costs_a_tool_that_part_only(part: str, malformed: Any) -> None:
    sound = {"name": "t", "inputSchema": {"type": "object"}}
    for other in ({}, {"title": "T"} if part != "title" else {"description": "d"}):
        assert repair_definition({**sound, **other, part: malformed}, "s") == {**sound, **other}


def test_an_output_that_is_no_object_is_described_to_clients_that_know_it() -> None:
    catalog = Catalog([Offer("service", [spec("t", outputSchema={"type": "array"})])])
    assert catalog.definitions[0]["outputSchema"] == {"type": "array"}
    assert "outputSchema" not in catalog.legacy_definitions[0]


def test_a_part_that_no_encoder_takes_is_left_out() -> None:
    deep: JSON = {}
    for _ in range(600):
        deep = {"type": "object", "not": deep}
    tool = {"name": "t", "inputSchema": deep, "outputSchema": deep, "description": "d"}
    assert repair_definition(tool, "s") == {
        "name": "t",
        "inputSchema": {"type": "object"},
        "description": "d",
    }


def test_an_output_schema_keeps_its_valid_parts() -> None:
    schema: JSON = {"type": "object", "properties": {"a": {"type": 5, "title": "A"}}, "allOf": 5}
    listed_tool = repair_definition({"name": "t", "inputSchema": {}, "outputSchema": schema}, "s")
    assert listed_tool is not None
    assert listed_tool["outputSchema"] == {"type": "object", "properties": {"a": {"title": "A"}}}


def test_an_alias_depends_on_the_name_and_the_prefix_only() -> None:
    alias = Catalog([Offer("one", list_specs("a b"))]).definitions[0]["name"]
    names = ["a:b", "a b", alias, "a_b"]
    catalog = Catalog([Offer("one", list_specs(*names)), Offer("two", list_specs("a b"), "p.")])
    listed_names = [tool["name"] for tool in catalog.definitions]
    # A tool that has the alias as its own name keeps it.
    assert listed_names[1:] == [f"{alias}_2", alias, "a_b", f"p.{alias}"]
    assert listed_names[0] not in (alias, f"{alias}_2")
    assert [entry.tool for entry in catalog.entries.values()] == [*names, "a b"]
    clash = Catalog([Offer("one", list_specs("a b")), Offer("two", list_specs("a b"))])
    assert list(clash.entries) == [alias, f"two_{alias}"]
    assert clash.entries[f"two_{alias}"].tool == "a b"


def test_include_and_exclude_take_the_name_of_the_server() -> None:
    specs = list_specs("a b", "c d")
    alias, other = (tool["name"] for tool in of(*specs))
    for offer in (
        Offer("s", specs, include=["a b"]),
        Offer("s", specs, exclude=["c d"]),
    ):
        assert list(Catalog([offer]).entries) == [alias]
        assert offer.may_have(alias)
        assert not offer.may_have(other)


@pytest.mark.thorough
def test_a_long_list_costs_little_more_than_its_json() -> None:
    members: JSON = {f"a{n}": {"type": "string", "description": "x"} for n in range(4)}
    schema: JSON = {"type": "object", "properties": members, "required": ["a1"]}
    specs = [spec(f"tool_{n}", schema, outputSchema=schema) for n in range(2000)]
    of(specs[0])
    started_at = time.process_time()
    for tool in specs:
        json.loads(json.dumps(tool.definition))
    json_seconds, started_at = time.process_time() - started_at, time.process_time()
    of(*specs)
    # The engine that this list was checked with before took several hundred times as long.
    assert time.process_time() - started_at < 50 * json_seconds


def test_two_broken_parts_cost_both() -> None:
    sound = {"name": "t", "inputSchema": {"type": "object"}, "description": "d"}
    listed_schema = repair_definition({**sound, "title": 5, "annotations": "a", "icons": 7}, "s")
    assert listed_schema == sound


def test_the_first_holder_of_a_name_keeps_it_whatever_the_order() -> None:
    offers = [Offer("evil", list_specs("pay", "look")), Offer("bank", list_specs("pay"))]
    holders = {"pay": "bank", "evil_pay": "third", "gone": "bank"}
    catalog = Catalog(offers, holders=holders)
    owners = {name: entry.service for name, entry in catalog.entries.items()}
    assert owners == {"evil_pay_2": "evil", "look": "evil", "pay": "bank"}
    assert "bank had this name first: pay is evil_pay_2" in catalog.renames_by_service()["evil"]
    # A name stays with its holder even while that one does not offer it.
    again = Catalog([Offer("evil", list_specs("gone"))], holders=holders)
    assert list(again.entries) == ["evil_gone"]
