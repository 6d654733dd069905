"""Coverage-guided fuzzing with atheris, which is no dependency: pip install atheris, in an environment beside excite's.

It pays for readers in pure Python: what leads to a new place in the code is kept and broken further.
"""

import sys
import tempfile
from inspect import getmembers, isclass, isfunction
from pathlib import Path
from random import Random

from breaking import FORMS
from fuzzed import Reader, content_of
from judging import ACCEPTED, REFUSED, Judge

__all__ = ["guided"]

PURE = ("excite.datasets", "excite.models.caffe", "excite.grounding.proposals", "excite.tags", "excite.vocabulary")


def guided(reader: Reader, seconds: float) -> int:
    """Look for failures for so long; the first one ends the process and is kept in a file that is told.

    Never returns: the library ends the process itself.
    """
    import atheris

    folder = Path(tempfile.mkdtemp(prefix="guided-"))
    (folder / "seeds").mkdir()
    for case in range(20):
        if (content := content_of(reader, case)) is not None:
            (folder / "seeds" / str(case)).write_bytes(content)
    (folder / "files").mkdir()
    judge = Judge(reader, folder / "files")
    for seed in sorted((folder / "seeds").iterdir()):
        judge.judge(seed.read_bytes())  # what is imported only now is to be looked at as well
    for module in [module for name, module in sys.modules.items() if name.startswith(PURE)]:
        for function in _functions(module):
            atheris.instrument_func(function)

    def judged(content: bytes) -> None:
        verdict = judge.judge(content)
        if verdict not in {ACCEPTED, REFUSED}:
            (folder / "failure").write_bytes(content)
            raise AssertionError(f"{verdict}; the file is {folder / 'failure'}")

    def broken(content: bytes, most: int, seed: int) -> bytes:
        return FORMS[reader.form](content, Random(seed), reader.tokens)[:most]

    limits = ["-max_len=20000", "-timeout=5", "-rss_limit_mb=3000"]
    options = [f"-max_total_time={int(seconds)}", *limits, "-print_final_stats=1"]
    atheris.Setup(["fuzz", *options, str(folder / "seeds")], judged, custom_mutator=broken)
    atheris.Fuzz()
    return 0


def _functions(module: object) -> list[object]:
    """The functions of a module, and those of its classes."""
    holders = [module, *(one for _, one in getmembers(module, isclass) if one.__module__ == module.__name__)]
    found = [one for holder in holders for _, one in getmembers(holder, isfunction)]
    return [one for one in dict.fromkeys(found) if one.__module__ == module.__name__]
