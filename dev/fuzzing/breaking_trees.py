"""Text files that have a structure, changed within it and written back: most are still good files of their kind."""

import csv
import io
import json
from copy import deepcopy
from random import Random
from xml.etree import ElementTree

from hostile_values import NUMBERS, TEXTS, VALUES

__all__ = ["csv_file", "json_file", "json_lines_file", "xml_file"]

DEEP, DIGITS, TWICE = "\0deep", "\0digits", "\0twice"  # stand for what `json.dumps` does not write
UNTOLD = {
    json.dumps(DEEP): "[" * 3_000 + "]" * 3_000,
    json.dumps(DIGITS): "7" * 6_000,
    json.dumps(TWICE): '{"id": 1, "id": [], "": 2}',
}
MOST_NODES = 20_000


def _places(tree: object) -> list[tuple[object, object]]:
    """Every container of the tree, with the key or the index of each thing in it."""
    found, waiting = [], [tree]
    while waiting and len(found) < MOST_NODES:
        node = waiting.pop()
        pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        found += [(node, key) for key, _ in pairs]
        waiting += [value for _, value in pairs if isinstance(value, dict | list) and value]
    return found


def _changed(tree: object, random: Random, tokens: tuple[bytes, ...]) -> object:
    holder = [tree]
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        node, key = random.choice(_places(holder)[1:] or _places(holder))
        value = node[key]
        match random.randrange(8):
            case 0 | 1 | 2:
                node[key] = deepcopy(random.choice(VALUES))
            case 3:
                node[key] = random.choice((DEEP, DIGITS, TWICE, *(token.decode(errors="replace") for token in tokens)))
            case 4 if node is not holder:
                del node[key]
            case 5 if isinstance(node, list) and node is not holder:
                node[key:key] = [value] * random.choice((1, 3, 300))
            case 5 if isinstance(node, dict):
                node[random.choice([*map(str, NUMBERS), *node])] = value
            case 6:
                node[key] = _other_kind(value, random)
            case 7:
                other, place = random.choice(_places(holder))
                node[key] = deepcopy(other[place])
    return holder[0]


def _other_kind(value: object, random: Random) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return random.choice(
            (-value, str(value), value * 10**9, [value], bool(value), abs(value) ** 0.5 if abs(value) < 1e300 else 0)
        )
    if isinstance(value, str):
        return random.choice((value * 500, value + "\0", value.upper(), value[::-1], f" {value} ", len(value), [value]))
    return random.choice((json.dumps(value)[:1000], [value], {"a": value}))


def _written(tree: object, random: Random) -> bytes:
    text = json.dumps(tree, ensure_ascii=random.random() < 0.8)
    for stand_in, truth in UNTOLD.items():
        text = text.replace(stand_in, truth)
    return text.encode(errors="surrogatepass")


def json_file(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
    """Values exchanged for others, left out, repeated, of another kind."""
    return _written(_changed(json.loads(content), random, tokens), random)


def json_lines_file(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
    """Lines broken as `json_file` does, repeated, mixed up."""
    lines = content.split(b"\n")
    for _ in range(random.choice((1, 1, 3))):
        place = random.randrange(len(lines))
        if lines[place].strip() and random.random() < 0.8:
            lines[place] = json_file(lines[place], random, tokens)
        else:
            lines[place:place] = [random.choice([*lines, *TEXTS])] * random.choice((1, 40))
    return random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n")).join(lines)


ENTITIES = "".join(f'<!ENTITY e{k} "{f"&e{k - 1};" * 10}">' for k in range(1, 10))
XML_HEADS = (
    "",
    "",
    "",
    "\ufeff",
    '<?xml version="1.0" encoding="UTF-16"?>',
    '<?xml version="1.1" encoding="no-such"?>',
    f'<!DOCTYPE annotation [<!ENTITY e0 "ha">{ENTITIES}]>',
    '<!DOCTYPE annotation SYSTEM "file:///etc/passwd">',
    '<!DOCTYPE annotation [<!ENTITY e9 SYSTEM "file:///etc/passwd">]>',
    "<!--" + "-" * 100 + "-->",
    "<?php exit ?>",
)


def xml_file(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
    """Elements with other texts, left out, repeated, nested, and heads that a parser may act upon."""
    root = ElementTree.fromstring(content)  # noqa: S314 - one of our own
    texts = [text.decode(errors="replace") for text in (*tokens, *TEXTS)] + [*map(str, NUMBERS), "1e400", "-0", "1_0"]
    for _ in range(random.choice((1, 1, 2, 4))):
        parent = random.choice(list(root.iter()))
        match random.randrange(6):
            case 0 | 1:
                parent.text = random.choice(texts)
            case 2 if len(parent):
                parent.remove(random.choice(list(parent)))
            case 3 if len(parent):
                parent.extend([deepcopy(random.choice(list(parent)))] * random.choice((1, 5, 200)))
            case 4:
                parent.append(deepcopy(random.choice(list(root.iter()))))
            case 5:
                parent.tag = random.choice(("annotation", "object", "a" * 3_000, parent.tag.upper(), "b.c-d"))
    text = ElementTree.tostring(root, encoding="unicode")
    if random.random() < 0.1:
        text = text.replace("><", f">{'<d>' * 2_000}&e9;{'</d>' * 2_000}<", 1)
    encoding = random.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-8-sig", "utf-32", "latin-1"))
    return (random.choice(XML_HEADS) + text).encode(encoding, errors="replace")


def csv_file(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
    """Cells with other texts, rows and columns left out, repeated, mixed up."""
    text = content.decode()
    sign = max(",\t ", key=text.count)
    rows = list(csv.reader(io.StringIO(text), delimiter=sign))
    texts = [one.decode(errors="replace") for one in (*tokens, *TEXTS)] + [*map(str, NUMBERS), "[", '["a"]', "1e400"]
    for _ in range(random.choice((1, 1, 2, 4))):
        row = random.choice([row for row in rows if row] or [[""]])
        place = random.randrange(len(row))
        match random.randrange(6):
            case 0 | 1 | 2:
                row[place] = random.choice(texts)
            case 3:
                row[place:place] = [random.choice(row)] * random.choice((1, 2, 50))
            case 4:
                del row[place]
            case 5:
                rows[len(rows) // 2 : len(rows) // 2] = [list(row)] * random.choice((1, 2, 100))
    file = io.StringIO()
    quoting = random.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    csv.writer(file, delimiter=sign, quoting=quoting, lineterminator=random.choice("\n\n\r")).writerows(rows)
    return file.getvalue().encode(errors="surrogatepass")
