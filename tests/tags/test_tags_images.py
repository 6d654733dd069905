"""The images of a corpus: from below a folder and never from beside it, from the web only when asked for."""

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serving import serving

from excite.errors import DataError, ExciteError, ImageError
from excite.tags.images import open_images, sources
from excite.tags.images.sources import FetchCache


@pytest.fixture
def root(tmp_path, encoded):
    root = tmp_path / "photos"
    (root / "deep").mkdir(parents=True)
    (root / "cat.jpg").write_bytes(encoded())
    (root / "deep/dog.png").write_bytes(encoded("blue", "PNG"))
    (tmp_path / "secret.jpg").write_bytes(encoded())
    return root


def refusal(pictures, name):
    """Reading, and even asking for the state, is refused in one short line."""
    said = []
    for ask in (pictures.read, pictures.encoded, pictures.state):
        with pytest.raises(ImageError) as caught:
            ask(name)
        said.append(str(caught.value))
    assert "\n" not in said[0]
    assert len(said[0]) < 600
    assert said[0] == said[1] == said[2]
    return said[0]


class TestAFolder:
    def test_reads_what_is_below(self, root, tmp_path):
        pictures = pickle.loads(pickle.dumps(open_images(root)))  # noqa: S301 - made here
        for name in ("cat.jpg", "./cat.jpg", "deep/../cat.jpg", "deep//../cat.jpg", str(root / "cat.jpg")):
            assert pictures.read(name).size == (6, 4)
        assert pictures.read("deep/dog.png").getpixel((0, 0)) == (0, 0, 255)
        assert pictures.encoded("deep/dog.png") == (root / "deep/dog.png").read_bytes()
        assert (pictures.groups, pictures.group("deep/dog.png")) == (1, 0)
        (tmp_path / "link").symlink_to(root)
        (root / "same.jpg").symlink_to("cat.jpg")
        assert open_images(tmp_path / "link").read("same.jpg").size == (6, 4)

    def test_the_state_changes_with_the_picture(self, root):
        pictures = open_images(root)
        before = pictures.state("cat.jpg")
        assert pictures.state("cat.jpg") == before != pictures.state("deep/dog.png")
        os.utime(root / "cat.jpg", ns=(1, 1))
        assert pictures.state("cat.jpg") != before

    def test_nothing_outside(self, root, tmp_path, encoded):
        (tmp_path / "photos2").mkdir()
        (tmp_path / "photos2/x.jpg").write_bytes(encoded())
        (root / "link.jpg").symlink_to(tmp_path / "secret.jpg")
        (root / "up").symlink_to(tmp_path)
        (root / "gone.jpg").symlink_to("/nowhere/x.jpg")
        names = ["../secret.jpg", "/etc/passwd", "deep/../../secret.jpg", "..", "../photos2/x.jpg", "/", "no/../../x"]
        for name in [*names, "link.jpg", "up/secret.jpg", "gone.jpg"]:
            assert f"lies outside of {root}" in refusal(open_images(root), name)
            assert "lies outside" in refusal(open_images(root, urls=True), name)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("", "no name"),
            ("cat.jpg\0.png", "zero byte"),
            ("x" * 1_000_000, "too long"),
            ("x/" * 500_000, "too long"),
            ("missing.jpg", "there is no image 'missing.jpg'"),
            ("cat.jpg/x", "cannot be read"),
            (".", "is a folder"),
            ("deep", "is a folder"),
            ("..\\secret.jpg", "there is no image"),
            ("\ud800.jpg", "cannot be read"),
            ("two\nlines.jpg", "there is no image"),
            ("loop", "cannot be read"),
            ("pipe.jpg", "pipe or a device"),
            ("empty.jpg", "empty"),
            ("huge.jpg", "more than 256 MB"),
        ],
    )
    def test_what_is_no_picture(self, root, name, said):
        os.mkfifo(root / "pipe.jpg")
        (root / "loop").symlink_to("loop")
        (root / "empty.jpg").touch()
        with (root / "huge.jpg").open("wb") as file:
            file.truncate(300 << 20)
        assert said in refusal(open_images(root), name).replace("File name too long", "too long")

    def test_damaged_and_disguised_ones(self, root, monkeypatch, encoded):
        (root / "cut.jpg").write_bytes(encoded(size=(400, 300))[:-400])
        (root / "page.jpg").write_text("<html>")
        for name, said in [("cut.jpg", "damaged or cut off"), ("page.jpg", "not an image excite can read")]:
            with pytest.raises(ImageError, match=f"'{name}'.*{said}"):
                open_images(root).read(name)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
        with pytest.raises(ImageError, match=r"'cat\.jpg' has more pixels than the limit"):
            open_images(root).read("cat.jpg")

    @pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list open files")
    def test_no_files_stay_open(self, root):
        pictures = open_images(root)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for name in ("cat.jpg", "deep", "missing.jpg", "../secret.jpg"):
            with suppress(ImageError):
                pictures.read(name)
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_no_such_place(self, root, tmp_path):
        for where in ("nowhere", "photos/cat.jpg"):
            with pytest.raises(DataError, match="there is no folder"):
                open_images(tmp_path / where)
        pictures = open_images(root)
        assert pictures.read("cat.jpg").size == (6, 4)
        root.rename(tmp_path / "elsewhere")
        with pytest.raises(ExciteError, match=r"the folder of images .* is gone"):
            pictures.read("cat.jpg")


class TestTheWeb:
    @pytest.fixture
    def server(self, encoded):
        with serving(encoded("green")) as state:
            yield state

    def test_only_when_asked_for_and_fetched_once(self, root, server, home, tmp_path):
        assert "urls=True" in refusal(open_images(root), server.url)
        assert server.asked == []
        pictures = pickle.loads(pickle.dumps(open_images(root, urls=True)))  # noqa: S301 - made here
        for _ in range(2):
            assert pictures.read(server.url).size == (6, 4)
        assert server.asked == [None]
        assert pictures.read("cat.jpg").size == (6, 4)
        assert (pictures.group(server.url), pictures.groups, pictures.state(server.url)) == (0, 1, server.url)
        kept = [path.name for path in (home / "pictures/web").iterdir()]
        assert sorted(len(name) for name in kept) == [32 + len(".picture"), 32 + len(".picture.lock")]
        open_images(root, tmp_path / "mine", urls=True).read(server.url)
        assert len(list((tmp_path / "mine/web").glob("*.picture"))) == 1

    def test_names_that_are_no_addresses_and_odd_ones(self, root, server, encoded):
        for name in ("ftp://127.0.0.1/x.jpg", "file:///etc/passwd", "HTTP://127.0.0.1/x", "data:,x"):
            assert "there is no image" in refusal(open_images(root, urls=True), name)
        server.files["/a%20%C3%BC.jpg"] = encoded(size=(9, 9))
        assert open_images(root, urls=True).read(server.url.replace("net.bin", "a ü.jpg")).size == (9, 9)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"status": 404}, "Not Found"),
            ({"cut_after": 100}, "broke after 100"),
            ({"content": b"<html>"}, "not an image"),
            ({"content": bytes(2001)}, "more than 2000 bytes"),
            ({"content": bytes(2001), "chunked": True}, "more than 2000 bytes"),
        ],
    )
    def test_what_goes_wrong_is_said(self, root, server, monkeypatch, home, options, reason):
        monkeypatch.setattr(sources, "MOST_FETCHED", 2000)
        vars(server).update(options)
        with pytest.raises(ImageError, match=reason):
            open_images(root, urls=True).read(server.url)
        assert "cut_after" in options or list((home / "pictures/web").glob("*.part")) == []

    def test_addresses_of_nothing(self, root):
        odd = ["http://127.0.0.1:9/x", "http://[", "http://", "http://127.0.0.1:x/", "https://\0"]
        for url in [*odd, "http://" + "x" * 10**6]:
            with pytest.raises(ImageError, match="cannot be had") as caught:
                open_images(root, urls=True).read(url)
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/passwd"])
    def test_redirections_stay_on_the_web(self, root, target):
        class Elsewhere(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(302)
                self.send_header("Location", target)
                self.end_headers()

            def log_message(self, *_):
                pass

        with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            with pytest.raises(ImageError, match=r"cannot be had.*(unknown url type|not allowed)"):
                open_images(root, urls=True).read(f"http://127.0.0.1:{server.server_port}/x.jpg")
            thread.join()


class TestTheCache:
    def test_makes_room_by_removing_what_was_used_longest_ago(self, tmp_path):
        with serving(bytes(1000)) as server:
            fetched = FetchCache(tmp_path, ".bin", most_together=2500)
            places = [fetched.get(f"{server.url}/{number}") for number in range(2)]
            os.utime(places[0], ns=(2, 0))
            os.utime(places[1], ns=(1, 0))
            with places[1].open("rb") as reader:
                third = fetched.get(f"{server.url}/2")
                assert [path.exists() for path in (*places, third)] == [True, False, True]
                assert reader.read() == bytes(1000)
            fetched.get(f"{server.url}/0")  # used just now, so the third goes next
            os.utime(third, ns=(1, 0))
            fetched.get(f"{server.url}/3")
            assert [places[0].exists(), third.exists()] == [True, False]
            assert fetched.get(f"{server.url}/1").stat().st_mtime_ns == 0  # fetched again
            fetched = FetchCache(tmp_path, ".bin", most_together=10)  # one that is too large is kept alone
            first, second = fetched.get(f"{server.url}/4"), fetched.get(f"{server.url}/5")
            assert [first.exists(), second.exists()] == [False, True]

    def test_several_threads_fetch_once(self, tmp_path):
        with serving(bytes(np.arange(200_000) % 251)) as server:
            fetched = FetchCache(tmp_path, ".bin")
            threads = [threading.Thread(target=fetched.get, args=(server.url,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert server.asked == [None]

    def test_a_killed_fetch_is_gone_on_with(self, tmp_path):
        """The lock ends with its process, and what it had fetched is not fetched again."""
        with serving(bytes(range(256)) * 10) as server:
            fetched = FetchCache(tmp_path, ".bin")
            place = fetched.path(server.url)
            code = (
                "import fcntl, os, sys\nlock = open(sys.argv[1] + '.lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
                "with open(sys.argv[1] + '.part', 'wb') as file: file.write(bytes(range(256)))\n"
                "os.kill(os.getpid(), 9)"
            )
            subprocess.run([sys.executable, "-c", code, str(place)], check=False)  # noqa: S603 - our own
            assert fetched.get(server.url).read_bytes() == server.content
            assert server.asked == ["bytes=256-"]
