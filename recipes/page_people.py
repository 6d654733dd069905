"""How quickly the page answers: one person at first, then ten at once for a minute, as docs/serve.md tells it.

    python recipes/page_people.py --pictures FOLDER [--people 10] [--seconds 60]

People speak as the page in the browser does: an image goes to POST /pictures, questions to POST /page/look.
Each drops an image, asks for six concepts and a phrase with half a second in between, and takes the next image.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from urllib.parse import SplitResult

CONCEPTS = "person cat dog car chair table bottle tree horse train boat bird cup sky road window ball".split()
PHRASES = ["a man on the left", "the red car", "a dog in the middle", "the largest chair", "a person on the right"]
PAUSE = 0.5  # seconds between two questions of a person
FORM = "multipart/form-data; boundary=frontier"
PART = '--frontier\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'


@contextmanager
def served() -> Iterator[tuple[SplitResult, int]]:
    """`excite serve` in a process of its own: its address and its process number."""
    command = [sys.executable, "-m", "excite", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        try:
            yield urlsplit(json.loads(process.stdout.readline())["url"]), process.pid
        finally:
            process.terminate()


class Person:
    """Somebody at the page.

    Args:
        place: the server's address.
        name: of the session.
    """

    def __init__(self, place: SplitResult, name: str) -> None:
        self.place, self.name = place, name

    def drop(self, content: bytes) -> None:
        """Send an image and wait for what the classifier finds."""
        self.picture = json.loads(self.send("POST", "/pictures", content))["picture"]
        self._look("", findings=True)

    def ask(self, question: str) -> None:
        """Ask for a concept or a phrase."""
        self._look(question, findings=False)

    def _look(self, question: str, *, findings: bool) -> None:
        asked = {"picture": self.picture, "model": "words", "question": question, "findings": findings}
        said = json.loads(self.send("POST", "/page/look", json.dumps(asked).encode(), "application/json"))
        if said["error"]:
            raise RuntimeError(f"{asked}: {said['error']}")

    def send(self, method: str, path: str, body: bytes | None = None, kind: str = "image/jpeg") -> bytes:
        """One request over HTTP."""
        connection = http.client.HTTPConnection(str(self.place.hostname), self.place.port, timeout=120)
        try:
            connection.request(method, path, body, {"Content-Type": kind} if body else {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """How many seconds it takes, and what it gives."""
    start = time.perf_counter()
    answer = function(*arguments)
    return time.perf_counter() - start, answer


def first_and_next(place: SplitResult, pictures: Sequence[bytes]) -> tuple[float, float]:
    """An image that is new, and then other concepts on it: over HTTP, where nothing but the answer is measured."""
    person = Person(place, "one")
    first, further = [], []
    for content in pictures:
        head, tail = PART.format("image", '; filename="a.jpg"'), "\r\n" + PART.format("concept", "")
        form = head.encode() + content + tail.encode() + b"cat\r\n--frontier--\r\n"
        taken, answer = timed(person.send, "POST", "/attend", form, FORM)
        first.append(taken)
        for concept in ("dog", "car", "tree"):
            body = json.dumps({"picture": json.loads(answer)["picture"], "concept": [concept]}).encode()
            further.append(timed(person.send, "POST", "/attend", body, "application/json")[0])
    return statistics.median(first), statistics.median(further)


def live(
    person: Person, pictures: Sequence[bytes], until: float, times: dict[str, list[float]], errors: list[str]
) -> None:
    """What a person does until the time is over."""
    chance = random.Random(person.name)  # noqa: S311 - no secret
    while time.monotonic() < until:
        try:
            times["picture"].append(timed(person.drop, chance.choice(pictures))[0])
            for question in [*chance.sample(CONCEPTS, 6), chance.choice(PHRASES)]:
                time.sleep(PAUSE)
                times["phrase" if " " in question else "concept"].append(timed(person.ask, question)[0])
        except (RuntimeError, OSError) as error:
            errors.append(str(error))


def megabytes(process: int) -> float:
    """What a process holds in memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def crowd(place: SplitResult, process: int, pictures: Sequence[bytes], people: int, seconds: float) -> None:
    """Many people at once; what they had to wait for is printed."""
    times: dict[str, list[float]] = {"picture": [], "concept": [], "phrase": []}
    errors: list[str] = []
    memory = []
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=live, args=(Person(place, f"p{k}"), pictures, until, times, errors))
        for k in range(people)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memory.append(megabytes(process))
        time.sleep(1)
    for kind, taken in {**times, "all": [one for each in times.values() for one in each]}.items():
        late = statistics.quantiles(taken, n=20)[-1]
        print(f"{kind:8} {len(taken):5} asked, median {statistics.median(taken):.2f} s, 95th percentile {late:.2f} s")
    sixths = [statistics.mean(memory[k * len(memory) // 6 : (k + 1) * len(memory) // 6]) for k in range(6)]
    print(f"errors: {len(errors)} {errors[:3]}")
    print(f"memory in sixths of the time: {', '.join(f'{mb:.0f}' for mb in sixths)} MB")


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pictures", type=Path, required=True, help="a folder of JPEG files")
    options.add_argument("--people", type=int, default=10)
    options.add_argument("--seconds", type=float, default=60)
    given = options.parse_args()
    pictures = [path.read_bytes() for path in sorted(given.pictures.glob("*.jpg"))[:200]]
    with served() as (place, process):
        warm = Person(place, "warm")
        warm.drop(pictures[-1])
        warm.ask("a dog on the left")
        first, further = (1000 * taken for taken in first_and_next(place, pictures[:20]))
        print(f"a new image {first:.0f} ms, another concept on it {further:.0f} ms ({further / first:.2f})")
        crowd(place, process, pictures, given.people, given.seconds)


if __name__ == "__main__":
    main()
