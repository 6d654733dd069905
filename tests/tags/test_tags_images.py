"""The images of a corpus: from below a folder and never from beside it, from the web only when asked for."""

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serving import serving

from excite.errors import DataError, ImageError
from excite.tags.images import open_images
from excite.tags.images import sources as urls
from excite.tags.images.sources import FetchCache, shown


def encoded(colour="red", kind="JPEG", size=(6, 4)):
    file = BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


@pytest.fixture
def root(tmp_path):
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
    def test_reads_what_is_below(self, root):
        pictures = open_images(root)
        assert pictures.read("cat.jpg").size == (6, 4)
        assert pictures.read("deep/dog.png").getpixel((0, 0)) == (0, 0, 255)
        assert pictures.encoded("deep/dog.png") == (root / "deep/dog.png").read_bytes()
        assert (pictures.groups, pictures.group("deep/dog.png")) == (1, 0)

    @pytest.mark.parametrize("name", ["./cat.jpg", "deep/../cat.jpg", "deep//../cat.jpg"])
    def test_other_ways_that_stay_inside(self, root, name):
        assert open_images(str(root)).read(name).size == (6, 4)

    def test_an_absolute_path_below_the_root(self, root):
        assert open_images(root).read(str(root / "cat.jpg")).size == (6, 4)

    def test_a_root_that_is_a_link_and_links_inside(self, root, tmp_path):
        (tmp_path / "link").symlink_to(root)
        (root / "same.jpg").symlink_to("cat.jpg")
        assert open_images(tmp_path / "link").read("same.jpg").size == (6, 4)

    def test_can_be_sent_to_workers(self, root):
        assert pickle.loads(pickle.dumps(open_images(root))).read("cat.jpg").size == (6, 4)  # noqa: S301 - made here

    def test_the_state_changes_with_the_picture(self, root):
        pictures = open_images(root)
        before = pictures.state("cat.jpg")
        assert pictures.state("cat.jpg") == before != pictures.state("deep/dog.png")
        os.utime(root / "cat.jpg", ns=(1, 1))
        assert pictures.state("cat.jpg") != before

    @pytest.mark.parametrize(
        "name", ["../secret.jpg", "/etc/passwd", "deep/../../secret.jpg", "..", "../photos2/x", "/", "nothing/../../x"]
    )
    def test_nothing_outside(self, root, name):
        assert f"lies outside of {root}" in refusal(open_images(root), name)

    def test_no_link_leads_out(self, root, tmp_path):
        (root / "link.jpg").symlink_to(tmp_path / "secret.jpg")
        (root / "up").symlink_to(tmp_path)
        (root / "gone.jpg").symlink_to("/nowhere/x.jpg")
        for name in ("link.jpg", "up/secret.jpg", "gone.jpg"):
            assert "lies outside of" in refusal(open_images(root), name)

    def test_a_folder_whose_name_begins_alike_is_outside(self, root, tmp_path):
        (tmp_path / "photos2").mkdir()
        (tmp_path / "photos2/x.jpg").write_bytes(encoded())
        assert "lies outside" in refusal(open_images(root), "../photos2/x.jpg")

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
            ("deep\\dog.png", "there is no image"),
            ("..\\secret.jpg", "there is no image"),
            ("\ud800.jpg", "cannot be read"),
            ("two\nlines.jpg", "there is no image"),
            ("loop", "cannot be read"),
            ("pipe.jpg", "pipe or a device"),
            ("empty.jpg", "empty"),
        ],
    )
    def test_what_is_no_picture(self, root, name, said):
        os.mkfifo(root / "pipe.jpg")
        (root / "loop").symlink_to("loop")
        (root / "empty.jpg").touch()
        assert said in refusal(open_images(root), name).replace("File name too long", "too long")

    def test_damaged_and_disguised_ones(self, root):
        (root / "cut.jpg").write_bytes(encoded(size=(400, 300))[:-400])
        (root / "page.jpg").write_text("<html>")
        for name, said in [("cut.jpg", "damaged or cut off"), ("page.jpg", "not an image excite can read")]:
            with pytest.raises(ImageError, match=f"'{name}'.*{said}"):
                open_images(root).read(name)

    def test_too_large_ones(self, root, monkeypatch):
        with (root / "huge.jpg").open("wb") as file:
            file.truncate(300 << 20)
        assert "more than 256 MB" in refusal(open_images(root), "huge.jpg")
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

    @pytest.mark.parametrize("where", ["nowhere", "", "photos/cat.jpg"])
    def test_no_such_place(self, root, where, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        if not where:
            where = str(tmp_path / "missing")
        with pytest.raises(DataError, match="there is no folder"):
            open_images(where)

    def test_names_in_errors_are_short(self):
        assert len(shown("\0" * 10**6)) < 600


class TestTheWeb:
    @pytest.fixture
    def server(self):
        with serving(encoded("green")) as state:
            yield state

    def test_only_when_asked_for(self, root, server):
        assert "urls=True" in refusal(open_images(root), server.url)
        assert server.asked == []

    def test_fetched_once(self, root, server, home):
        pictures = pickle.loads(pickle.dumps(open_images(root, urls=True)))  # noqa: S301 - made here
        for _ in range(2):
            assert pictures.read(server.url).size == (6, 4)
        assert server.asked == [None]
        assert pictures.read("cat.jpg").size == (6, 4)
        assert (pictures.group(server.url), pictures.groups, pictures.state(server.url)) == (0, 1, server.url)
        kept = [path.name for path in (home / "pictures/web").iterdir()]
        assert sorted(len(name) for name in kept) == [32 + len(".picture"), 32 + len(".picture.lock")]

    def test_a_cache_of_ones_own(self, root, server, tmp_path):
        open_images(root, tmp_path / "mine", urls=True).read(server.url)
        assert len(list((tmp_path / "mine/web").glob("*.picture"))) == 1

    def test_the_root_still_holds(self, root):
        assert "lies outside" in refusal(open_images(root, urls=True), "../secret.jpg")

    @pytest.mark.parametrize("name", ["ftp://127.0.0.1/x.jpg", "file:///etc/passwd", "HTTP://127.0.0.1/x", "data:,x"])
    def test_no_other_schemes(self, root, name):
        assert "there is no image" in refusal(open_images(root, urls=True), name)

    def test_a_letter_that_addresses_do_not_have(self, root, server):
        server.files["/a%20%C3%BC.jpg"] = encoded(size=(9, 9))
        assert open_images(root, urls=True).read(server.url.replace("net.bin", "a ü.jpg")).size == (9, 9)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"status": 404}, "Not Found"),
            ({"cut_after": 100}, "broke after 100"),
            ({"content": b"<html>"}, "not an image"),
        ],
    )
    def test_what_goes_wrong_is_said(self, root, server, options, reason):
        vars(server).update(options)
        with pytest.raises(ImageError, match=reason):
            open_images(root, urls=True).read(server.url)

    @pytest.mark.parametrize(
        "url",
        ["http://127.0.0.1:9/x", "http://[", "http://", "http://127.0.0.1:x/", "https://\0", "http://" + "x" * 10**6],
    )
    def test_addresses_of_nothing(self, root, url):
        with pytest.raises(ImageError, match="cannot be had") as caught:
            open_images(root, urls=True).read(url)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("chunked", [False, True])
    def test_too_many_bytes(self, root, server, monkeypatch, home, chunked):
        monkeypatch.setattr(urls, "MOST_FETCHED", 500)
        server.content, server.chunked = bytes(501), chunked
        with pytest.raises(ImageError, match="more than 500 bytes"):
            open_images(root, urls=True).read(server.url)
        assert list((home / "pictures/web").glob("*.p*rt")) == []

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

    def test_one_that_is_larger_than_the_room_is_kept_alone(self, tmp_path):
        with serving(bytes(1000)) as server:
            fetched = FetchCache(tmp_path, ".bin", most_together=10)
            first, second = fetched.get(f"{server.url}/0"), fetched.get(f"{server.url}/1")
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
