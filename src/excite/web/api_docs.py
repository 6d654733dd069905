"""The description of the HTTP interface at /docs: one page without scripts, made from the OpenAPI document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from excite.web.assets import filled_in

if TYPE_CHECKING:
    from excite.web.schemas import Question

FORM, JSON, BYTES = "multipart/form-data", "application/json", "application/octet-stream"
IMAGE = "The image: a JPEG, PNG, WEBP, GIF, TIFF, BMP, AVIF, JPEG 2000 or PPM file."
LEFT_OUT = {"picture", "model"}  # of the examples

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
    return filled_in("docs.html", document=document, address=address, examples=_examples)


def _examples(method: str, url: str, content: Document) -> list[str]:
    """A call with curl, and in Python; ``content`` is that of its body."""
    is_image = url.endswith("KEY")
    if method == "get":
        last = ".content" if is_image else ".json()"
        curl, call = f"curl '{url}'{' --output picture.jpg' if is_image else ''}", f'requests.get("{url}"){last}'
    elif BYTES in content:
        curl = f"curl --data-binary @photo.jpg '{url}'"
        call = f'requests.post("{url}", data=open("photo.jpg", "rb")).json()'
    else:
        properties = content[FORM]["schema"]["properties"].items()
        fields = {name: one["examples"][0] for name, one in properties if "examples" in one and name not in LEFT_OUT}
        curl = f"curl -F image=@photo.jpg {''.join(f'-F {name}={value!r} ' for name, value in fields.items())}'{url}'"
        call = f'requests.post("{url}", files={{"image": open("photo.jpg", "rb")}}, data={json.dumps(fields)}).json()'
    return [curl, f"import requests\n\nanswer = {call}"]
