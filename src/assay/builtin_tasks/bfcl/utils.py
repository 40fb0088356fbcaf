"""BFCL: load the questions with their possible answers, write the prompt or the tools, and judge the calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.core.records.tools import ToolAnswer
from assay.scoring.tool_calls.bfcl import (
    decode_native_calls,
    decode_text_calls,
    find_bfcl_language,
    match_bfcl,
)
from assay.scoring.tool_calls.matching import Call
from assay.scoring.tool_calls.python_calls import CallSyntaxError

REPOSITORY = "gorilla-llm/Berkeley-Function-Calling-Leaderboard"
_EXAMPLES = {
    "python": "[area(base=10, unit='cm'), weather.today(city='Rome')]",
    "java": '[Geometry.area(base=10, unit="cm")]',
    "javascript": "[area(base=10, unit='cm')]",
}
_LANGUAGES = {"python": "Python", "java": "Java", "javascript": "JavaScript"}

_JSON_TYPES = {
    "integer": "integer", "int": "integer", "byte": "integer", "short": "integer", "long": "integer", "Bigint": "integer",
    "number": "number", "float": "number", "double": "number",
    "boolean": "boolean", "bool": "boolean",
    "array": "array", "list": "array", "tuple": "array", "ArrayList": "array", "Array": "array", "Queue": "array",
    "Stack": "array",
    "dict": "object", "object": "object", "HashMap": "object", "Hashtable": "object",
}  # fmt: skip
"""The JSON schema types of the types in the data; all others are strings."""


def load_category(category: str, data_root: str | None = None, **_: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the documents of a category. The files are JSON lines whose structure differs between lines."""
    name = f"BFCL_v4_{category}.json"
    folder = Path(data_root) / REPOSITORY if data_root else None
    if folder is None or not folder.is_dir():
        from huggingface_hub import snapshot_download

        patterns = [name, f"possible_answer/{name}"]
        folder = Path(snapshot_download(REPOSITORY, repo_type="dataset", allow_patterns=patterns))
    answers_file = folder / "possible_answer" / name
    answers = _read_by_id(answers_file) if answers_file.is_file() else {}
    documents = [
        {
            "id": key,
            "category": category,
            "question": document["question"][0],
            "functions": document["function"],
            "possible_answers": answers.get(key, {}).get("ground_truth", []),
        }
        for key, document in _read_by_id(folder / name).items()
    ]
    return {"test": documents}


def _read_by_id(path: Path) -> dict[str, dict[str, Any]]:
    lines = path.read_text("utf-8").splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


def list_tools(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the functions as tools for models that support tools. A dot in a name is an underscore.

    The arguments of Java and JavaScript functions are strings with source text.
    """
    language = find_bfcl_language(document["category"])
    tools = {}
    for function in document["functions"]:
        name = function["name"].replace(".", "_")
        parameters = _to_json_schema(function["parameters"])
        if language != "python":
            parameters["properties"] = {
                key: _describe_source_text(schema, language)
                for key, schema in function["parameters"].get("properties", {}).items()
            }
        tools[name] = {"name": name, "description": function.get("description", ""), "parameters": parameters}
    return list(tools.values())


def _to_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the types of JSON, and only with keywords of JSON schemas."""
    found: dict[str, Any] = {"type": _JSON_TYPES.get(str(schema.get("type")), "string")}
    found |= {key: schema[key] for key in ("description", "default") if key in schema}
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        found["enum"] = schema["enum"]
    if found["type"] == "array":
        items = schema.get("items")
        found["items"] = _to_json_schema(items) if isinstance(items, dict) else {}
    if found["type"] == "object" and isinstance(schema.get("properties"), dict):
        properties = {key: _to_json_schema(one) for key, one in schema["properties"].items()}
        required = schema.get("required")
        names = [name for name in required if name in properties] if isinstance(required, list) else []
        found |= {"properties": properties, "required": names}
    return found


def _describe_source_text(schema: dict[str, Any], language: str) -> dict[str, Any]:
    kind = f" (`{schema['type']}`)" if schema.get("type") else ""
    form = f"A {_LANGUAGES[language]} value{kind}, written as source text."
    return {"type": "string", "description": f"{schema.get('description', '')} {form}".strip()}


def doc_to_question(document: dict[str, Any]) -> str:
    """Write the conversation, for models that get the functions as tools."""
    return _join_messages(document)


def _join_messages(document: dict[str, Any]) -> str:
    return "\n\n".join(
        message["content"] if message["role"] == "user" else f"({message['role']}) {message['content']}"
        for message in document["question"]
    )


def doc_to_text(document: dict[str, Any]) -> str:
    """Write the functions, the form of an answer and the conversation."""
    language = find_bfcl_language(document["category"])
    functions = "\n".join(json.dumps(function, ensure_ascii=False) for function in document["functions"])
    return (
        f"You can call these {_LANGUAGES[language]} functions, described as JSON:\n\n{functions}\n\n"
        "Answer the request below with the function calls that it needs, as a list in one line and nothing else, for example:\n"
        f"{_EXAMPLES[language]}\n"
        "Name every argument. If no function fits, or an argument that it needs is missing, say so in a sentence without a call.\n\n"
        f"Request: {_join_messages(document)}\n\nCalls:"
    )


def doc_to_target(document: dict[str, Any]) -> str:
    """Return the first possible answer as text."""
    category = document["category"]
    if category == "live_relevance":  # any call is right
        return f"[{document['functions'][0]['name']}()]"
    language = find_bfcl_language(category)
    schemas = {function["name"]: function["parameters"] for function in document["functions"]}
    calls = []
    for answer in document["possible_answers"]:
        for name, arguments in answer.items():
            schema = schemas.get(name, {})
            types = {key: one["type"] for key, one in schema.get("properties", {}).items()}
            needed = {
                key: _choose([value for value in values if value != ""])
                for key, values in arguments.items()
                if "" not in values or key in schema.get("required", ())
            }
            written = [
                f"{key}={_write(value, types.get(key, ''), language)}" for key, value in needed.items()
            ]
            calls.append(f"{name}({', '.join(written)})")
    return f"[{', '.join(calls)}]" if calls else "no function fits"


def _choose(values: list[Any]) -> Any:
    """Return the first allowed value. Dictionaries list the allowed values of each key."""
    value = values[0] if values else ""
    if isinstance(value, dict):
        return {key: _choose(options) for key, options in value.items() if options and "" not in options}
    return [_choose([item]) for item in value] if isinstance(value, list) else value


def _write(value: Any, kind: str, language: str) -> str:
    """Write a value as source text. Text for a type that is no text is the name of a variable, or code."""
    if language == "python":
        return repr(value)
    if isinstance(value, str):
        if kind not in ("String", "string", "char", "any", ""):
            return value
        return f"'{value}'" if '"' in value else f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if language == "javascript":
        return json.dumps(value)
    if isinstance(value, list):
        items = ", ".join(_write(item, "", language) for item in value)
        return f"new Object[]{{{items}}}" if kind == "Array" else f"new ArrayList<>(Arrays.asList({items}))"
    if isinstance(value, dict):
        puts = " ".join(f'put("{key}", {_write(item, "", language)});' for key, item in value.items())
        return f"new HashMap<>() {{{{ {puts} }}}}"
    suffix = {"long": "L", "float": "f"}.get(kind, "")
    return f"{value}{suffix}"


def process_results(document: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Judge the calls of a response. `parsed` tells whether the response consists of calls."""
    category, answer = document["category"], results[0]
    native = isinstance(answer, ToolAnswer)
    try:
        calls = (
            _read_native_calls(answer)
            if isinstance(answer, ToolAnswer)
            else decode_text_calls(answer, category)
        )
        parsed = True
    except CallSyntaxError:
        calls, parsed = [], False
    expects_no_call = "irrelevance" in category
    if not parsed and not expects_no_call:
        return {"acc": 0.0, "parsed": 0.0}
    mismatch = match_bfcl(calls, category, document["functions"], document["possible_answers"], native=native)
    return {"acc": float(mismatch is None), "parsed": float(parsed or expects_no_call)}


def _read_native_calls(answer: ToolAnswer) -> list[Call]:
    """Return the tool calls of a response.

    Raises:
        CallSyntaxError: There are none, or one has arguments that are not a JSON object.
    """
    if not answer.calls:
        raise CallSyntaxError("the response has no tool calls")
    return decode_native_calls([{call.name: call.arguments} for call in answer.calls])
