"""The lists of the conformance suite's server, and the schemas of its forms."""

from __future__ import annotations

from typing import Any, TypeAlias

JSON: TypeAlias = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
IMAGE: JSON = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO: JSON = {"type": "audio", "data": SOUND, "mimeType": "audio/wav"}

ADDRESS: JSON = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
DIALECT: JSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""A schema with the words of JSON Schema 2020-12 that must survive a list (SEP-1613, SEP-2106)."""


def tool(name: str, *required: str) -> JSON:
    properties = {argument: {"type": "string"} for argument in required}
    schema: JSON = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return {"name": name, "description": f"Serves {name}.", "inputSchema": schema}


_REGION: JSON = {"type": "string", "x-mcp-header": "Region"}

TOOLS: list[JSON] = [
    *(
        tool(f"test_{name}")
        for name in (
            "simple_text",
            "image_content",
            "audio_content",
            "embedded_resource",
            "multiple_content_types",
            "logging_tool",
            "tool_with_logging",
            "tool_with_progress",
            "error_handling",
            "elicitation_sep1034_defaults",
            "elicitation_sep1330_enums",
            "reconnection",
            "missing_capability",
            "streaming_elicitation",
            "trigger_tool_change",
            "trigger_prompt_change",
            "input_required_result_elicitation",
            "input_required_result_sampling",
            "input_required_result_list_roots",
            "input_required_result_request_state",
            "input_required_result_multiple_inputs",
            "input_required_result_multi_round",
            "input_required_result_tampered_state",
            "input_required_result_capabilities",
        )
    ),
    tool("test_sampling", "prompt"),
    tool("test_elicitation", "message"),
    {"name": "json_schema_2020_12_tool", "description": "Has a schema.", "inputSchema": DIALECT},
    {
        "name": "test_x_mcp_header",
        "description": "Mirrors an argument in a header.",
        "inputSchema": {"type": "object", "properties": {"region": _REGION}},
    },
]


def _argument(name: str) -> JSON:
    return {"name": name, "description": f"The {name} of the prompt.", "required": True}


PROMPTS: list[JSON] = [
    {"name": "test_simple_prompt", "description": "Has no arguments."},
    {
        "name": "test_prompt_with_arguments",
        "description": "Has two arguments.",
        "arguments": [_argument("arg1"), _argument("arg2")],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "Embeds a resource.",
        "arguments": [_argument("resourceUri")],
    },
    {"name": "test_prompt_with_image", "description": "Shows an image."},
    {"name": "test_input_required_result_prompt", "description": "Asks for input."},
]

RESOURCES: list[JSON] = [
    {"uri": "test://static-text", "name": "static-text", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png"},
    {"uri": "test://watched-resource", "name": "watched-resource", "mimeType": "text/plain"},
]
TEMPLATES: list[JSON] = [
    {
        "uriTemplate": "test://template/{id}/data",
        "name": "template-data",
        "title": "Data by number",
        "mimeType": "application/json",
    }
]

FORM_DEFAULTS: JSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "description": "Whether verified", "default": True},
    },
}


def _choices(*names: str) -> list[JSON]:
    return [{"const": name, "title": f"Option {name}"} for name in names]


ENUMS: JSON = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": _choices("low", "medium", "high")},
        "legacyEnum": {
            "type": "string",
            "enum": ["small", "medium", "large"],
            "enumNames": ["Small", "Medium", "Large"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["read", "write", "execute"]},
        },
        "titledMulti": {"type": "array", "items": {"anyOf": _choices("feature", "bug", "docs")}},
    },
}
"""The five kinds of choices that a form may have (SEP-1330)."""
