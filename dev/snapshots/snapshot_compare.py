"""Compare what was frozen with what is there now, in words; and write it so that people can read the difference."""

import difflib
import json
import math
import re

__all__ = ["differences", "dump"]

RELATIVE, ABSOLUTE = 1e-5, 1e-7
BRIGHTNESS = 1.01  # of pictures, in the mean of a tile: one grey level of rounding
NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
WIDE = 116
MOST_LINES = 30  # of a list that has become longer or shorter


def near(old, new, absolute=ABSOLUTE):
    """Whether two numbers are the same but for rounding; whole numbers are exact."""
    if type(old) is not type(new):
        return False
    if isinstance(old, int):
        return old == new
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new)
    return old == new or abs(old - new) <= max(absolute, RELATIVE * max(abs(old), abs(new)))


def same_text(old, new):
    """Whether two texts are the same but for rounding of the numbers in them."""
    if old == new:
        return True
    if NUMBERS.split(old) != NUMBERS.split(new):
        return False
    pairs = zip(NUMBERS.findall(old), NUMBERS.findall(new), strict=True)
    return all(one == two or near(_number(one), _number(two)) for one, two in pairs)


def _number(text):
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def differences(old, new, where=""):
    """Every place where the two differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            place = f"{where}/{key}"
            if key not in new:
                yield f"{place}: gone; it was {_short(old[key])}"
            elif key not in old:
                yield f"{place}: new; it is {_short(new[key])}"
            else:
                yield from differences(old[key], new[key], place)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {len(old)} entries became {len(new)}\n{_moved(old, new)}"
            return
        for number, (one, two) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, two, f"{where}[{number}]")
    elif not _same(old, new, where):
        yield f"{where}:\n    was {_short(old)}\n    is  {_short(new)}"


def _same(old, new, where):
    if isinstance(old, str) and isinstance(new, str):
        return same_text(old, new)
    if isinstance(old, bool) or isinstance(new, bool) or old is None or new is None:
        return old is new
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return near(old, new, BRIGHTNESS if "/brightness[" in where else ABSOLUTE)
    return False


def _moved(old, new):
    """Which entries went and came, where a list has become longer or shorter."""
    one, two = ([_short(each) for each in entries] for entries in (old, new))
    lines = list(difflib.unified_diff(one, two, "was", "is", n=1, lineterm=""))
    return "\n".join(f"    {line}" for line in lines[2:MOST_LINES])


def _short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 300 else f"{text[:300]} ..."


def dump(value, indent=0):
    """JSON with a line for whatever fits in one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= WIDE or not isinstance(value, (dict, list)) or not value:
        return line
    margin = " " * (indent + 1)
    if isinstance(value, dict):
        inner = [
            f"{margin}{json.dumps(key, ensure_ascii=False)}: {dump(each, indent + 1)}" for key, each in value.items()
        ]
        return "{\n" + ",\n".join(inner) + "\n" + " " * indent + "}"
    inner = [margin + dump(each, indent + 1) for each in value]
    return "[\n" + ",\n".join(inner) + "\n" + " " * indent + "]"
