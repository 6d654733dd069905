"""The description of the HTTP interface at /docs: one page without scripts, made from the OpenAPI document."""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.web.schemas import Question

FORM, JSON, BYTES = "multipart/form-data", "application/json", "application/octet-stream"
IMAGE = "The image: a JPEG, PNG, WEBP, GIF, TIFF, BMP, AVIF, JPEG 2000 or PPM file."
STYLE = """
:root { color-scheme: light dark; --ink: #22252a; --soft: #5d636d; --paper: #fff; --card: #f4f5f7; --line: #d9dce1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a3a9b3; --paper: #15171a; --card: #1f2226;
  --line: #3a3f46; } }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; font-family: ui-monospace, monospace; }
pre { background: var(--card); padding: .8rem; overflow-x: auto; border-radius: .4rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; } th { color: var(--soft); }
a { color: inherit; }
"""

Document = dict[str, Any]


def question_body(kind: type[Question] | None) -> Document:
    """The OpenAPI description of a body with these fields, which may be a form or JSON; None: the image alone."""
    file = {"type": "string", "format": "binary", "description": IMAGE}
    if kind is None:
        form = {"type": "object", "properties": {"image": file}, "required": ["image"]}
        content = {BYTES: {"schema": {"type": "string", "format": "binary"}}, FORM: {"schema": form}}
        return {"requestBody": {"required": True, "content": content}}
    schema = kind.model_json_schema()
    text = {"type": "string", "format": "byte", "description": f"{IMAGE} As base64."}
    forms = {
        FORM: {**schema, "properties": {"image": file, **schema["properties"]}},
        JSON: {**schema, "properties": {"image": text, **schema["properties"]}},
    }
    return {"requestBody": {"required": True, "content": {name: {"schema": form} for name, form in forms.items()}}}


def docs_page(document: Document, address: str) -> str:
    """The page for an OpenAPI document; ``address`` is that of the server, for the examples."""
    calls = [
        (method, path, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        if method in {"get", "post"}
    ]
    about = document["info"]
    parts = [f"<h1>{escape(about['title'])} {escape(about['version'])}: HTTP</h1><p>{_prose(about['description'])}</p>"]
    parts.append('<p>For machines: <a href="openapi.json">openapi.json</a>. For people: <a href="./">the page</a>.</p>')
    links = [f'<li><a href="#{_anchor(m, p)}">{m.upper()} {escape(p)}</a>: {escape(c["summary"])}' for m, p, c in calls]
    parts.append(f"<ul>{''.join(links)}</ul>")
    parts += [_call(document, address, *call) for call in calls]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    title = f"<title>{escape(about['title'])}: HTTP</title>"
    begun = f'<!doctype html><html lang="en"><head>{head}{title}<style>{STYLE}</style></head><body><main>'
    return f"{begun}{''.join(parts)}</main></body></html>"


def _anchor(method: str, path: str) -> str:
    return escape(f"{method}{path}".replace("/", "-").strip("{}"))


def _call(document: Document, address: str, method: str, path: str, call: Document) -> str:
    content = call.get("requestBody", {}).get("content", {})
    form = content.get(FORM, {}).get("schema")
    fields = _fields(form) if form else [_parameter(one) for one in call.get("parameters", [])]
    answer = call["responses"]["200"].get("content", {}).get(JSON, {}).get("schema", {})
    shown = [f'<h2 id="{_anchor(method, path)}">{method.upper()} {escape(path)}</h2><p>{escape(call["summary"])}</p>']
    if "description" in call:
        shown.append(f"<p>{_prose(call['description'])}</p>")
    shown.append(_table("Fields", fields))
    shown.append(_table("Answer", _fields(_resolved(document, answer), document)))
    errors = [(code, "", one["description"]) for code, one in call["responses"].items() if code != "200"]
    shown.append(_table("Errors", errors))
    example = {
        name: one["examples"][0] for name, one in (form or {}).get("properties", {}).items() if "examples" in one
    }
    example = {name: value for name, value in example.items() if name not in {"picture", "model"}}
    sent = BYTES in content, form and example
    shown += [f"<pre><code>{escape(made(address, method, path, *sent))}</code></pre>" for made in (_curl, _python)]
    return "".join(shown)


def _fields(
    schema: Mapping[str, Any], document: Document | None = None, inside: str = ""
) -> list[tuple[str, str, str]]:
    """Names, kinds and descriptions of the fields of an object and of the objects in it."""
    found: list[tuple[str, str, str]] = []
    for name, one in schema.get("properties", {}).items():
        found.append((inside + name, _kind(one), one.get("description", "")))
        items = one.get("items", {})
        if document is not None and "$ref" in items:
            found += _fields(_resolved(document, items), document, f"{inside}{name}[].")
    return found


def _parameter(one: Document) -> tuple[str, str, str]:
    return one["name"], _kind(one.get("schema", {})), one.get("description", "")


def _resolved(document: Document, schema: Document) -> Document:
    """The schema behind a reference; of a list, that of its items."""
    schema = schema.get("items", schema) if schema.get("type") == "array" else schema
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Document = document["components"]["schemas"][name] if name else schema
    return found


def _kind(schema: Document) -> str:
    if schema.get("format") == "binary":
        return "file"
    if "anyOf" in schema:
        return next((_kind(one) for one in schema["anyOf"] if one.get("type") != "null"), "")
    if schema.get("type") == "array":
        return f"{_kind(schema.get('items', {})) or 'object'}, several"
    kind = str(schema.get("type", ""))
    return f"{kind}, usually {json.dumps(schema['default'])}" if schema.get("default") is not None else kind


def _prose(text: str) -> str:
    """Text with `code` between backticks, as HTML."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _table(caption: str, rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    lines = [f"<tr><th scope=row><code>{escape(a)}</code><td>{escape(b)}<td>{_prose(c)}</tr>" for a, b, c in rows]
    return f"<table><caption>{caption}</caption>{''.join(lines)}</table>"


def _curl(address: str, method: str, path: str, raw: bool, form: Document | None) -> str:  # noqa: FBT001 - as _python
    url = f"'{address}{path.replace('{key}', 'KEY')}'"
    if method == "get":
        return f"curl {url}" + (" --output picture.jpg" if "{key}" in path else "")
    if raw:
        return f"curl --data-binary @photo.jpg {url}"
    return f"curl -F image=@photo.jpg {''.join(f'-F {name}={value!r} ' for name, value in (form or {}).items())}{url}"


def _python(address: str, method: str, path: str, raw: bool, form: Document | None) -> str:  # noqa: FBT001 - as _curl
    url = json.dumps(f"{address}{path.replace('{key}', 'KEY')}")
    if method == "get":
        last = ".content" if "{key}" in path else ".json()"
        return f"import requests\n\nanswer = requests.get({url}){last}"
    opened = 'open("photo.jpg", "rb")'
    if raw:
        return f"import requests\n\nanswer = requests.post({url}, data={opened}).json()"
    data = f", data={json.dumps(form)}" if form else ""
    return f'import requests\n\nanswer = requests.post({url}, files={{"image": {opened}}}{data}).json()'
