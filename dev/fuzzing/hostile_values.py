"""Numbers and texts that programs have fallen for."""

__all__ = ["NUMBERS", "TEXTS", "VALUES", "WIDTHS"]

NUMBERS = (
    *(0, 1, -1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536),
    *(2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)),
)

WIDTHS = (("B", 1), ("H", 2), ("I", 4), ("I", 4), ("Q", 8))
"""Codes of `struct` and their bytes."""

TEXTS = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",  # half of a character
    b"\xe2\x80\xa8",  # a line break that few know
    b"\r",
    b"\n\n",
    b'"',
    b"'",
    b"\\",
    b"%s%n",
    b"NaN",
    b"-Infinity",
    b"1e400",
    b"0x7fffffff",
    b"../../../../etc/passwd",
    b"/etc/passwd",
    b"C:\\con",
    b"file:///etc/passwd",
    b"http://127.0.0.1:9/x",
    b"a" * 5_000,
    b"x/" * 3_000,
    "\N{LATIN SMALL LETTER DOTLESS I}\N{COMBINING ACUTE ACCENT}\N{PILE OF POO}".encode(),
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe".encode(),
    "\N{ARABIC-INDIC DIGIT FOUR}\N{SUPERSCRIPT TWO}".encode(),
)

VALUES = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), -float("inf")),
    *(2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**25, 10**400),
    *(
        "",
        " ",
        "\0",
        "\ud800",
        "\udcff",
        "a\nb",
        "..",
        "/",
        "../../etc/passwd",
        "/etc/passwd",
        "nan",
        "1",
        "-1",
        "a" * 5000,
    ),
    *([], {}, [[]], [{}], {"": None}, [None] * 4, [0, 0, 0, 0], [1e308] * 6, [-1, -1, 2**40, 2**40], "\u2028", "x\ty"),
)
"""What may stand in place of any value of a JSON file."""
