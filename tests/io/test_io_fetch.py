"""Downloads from a server in this process: cached, resumed, verified by their hash."""

import hashlib

import pytest
from serving import serving

from excite.errors import FetchError
from excite.io import fetch as fetching
from excite.io.fetch import Remote, cache_folder, fetch, fetch_to

CONTENT = bytes(range(256)) * 1000
SHA1 = hashlib.sha1(CONTENT, usedforsecurity=False).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(CONTENT) as state:
        yield state


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def remote(server, sha1=SHA1):
    return Remote("net.bin", server.url, sha1)


def partial(home, content=None):
    path = home / "weights" / "net.bin.part"
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return path


class TestWhole:
    @pytest.mark.parametrize("options", [{}, {"knows_ranges": False}, {"chunked": True}])
    def test_into_the_cache_and_only_once(self, server, home, options):
        vars(server).update(options)
        path = fetch(remote(server), "weights")
        assert path == home / "weights" / "net.bin"
        assert path.read_bytes() == CONTENT
        assert fetch(remote(server), "weights") == path
        assert server.asked == [None]
        assert [file.name for file in path.parent.iterdir()] == ["net.bin"]

    def test_a_file_put_there_by_hand_is_taken(self, server, home):
        (home / "weights").mkdir(parents=True)
        (home / "weights" / "net.bin").write_bytes(b"mine")
        assert fetch(remote(server), "weights").read_bytes() == b"mine"
        assert server.asked == []

    def test_where_the_cache_is(self, home, monkeypatch):
        assert cache_folder() == home
        for value in ("", None):
            monkeypatch.setenv("EXCITE_HOME", value) if value is not None else monkeypatch.delenv("EXCITE_HOME")
            monkeypatch.setenv("HOME", str(home.parent))
            assert cache_folder() == home.parent / ".cache" / "excite"

    def test_a_progress_bar_where_somebody_looks(self, server, home, monkeypatch, capsys):
        monkeypatch.setattr(fetching.sys.stderr, "isatty", lambda: True)
        monkeypatch.setattr(fetching, "CHUNK", 100_000)
        assert fetch(remote(server), "weights").read_bytes() == CONTENT
        assert "net.bin" in capsys.readouterr().err


class TestResuming:
    @pytest.mark.parametrize("knows_ranges", [True, False])
    @pytest.mark.parametrize("kept", [1, 100_000, len(CONTENT) - 1, len(CONTENT)])
    def test_only_the_rest_is_asked_for(self, server, home, kept, knows_ranges):
        server.knows_ranges = knows_ranges  # or all comes again
        partial(home, CONTENT[:kept])
        assert fetch(remote(server), "weights").read_bytes() == CONTENT
        assert server.asked == [f"bytes={kept}-"]
        assert not partial(home).exists()

    def test_after_a_connection_that_broke(self, server, home):
        server.cut_after = 70_000
        with pytest.raises(FetchError, match=r"broke after 70000 of 256000 bytes.*Start again to resume"):
            fetch(remote(server), "weights")
        assert partial(home).read_bytes() == CONTENT[:70_000]
        assert not (home / "weights" / "net.bin").exists()
        server.cut_after = 50_000
        with pytest.raises(FetchError, match="broke after 120000 of 256000"):
            fetch(remote(server), "weights")
        server.cut_after = None
        assert fetch(remote(server), "weights").read_bytes() == CONTENT
        assert server.asked == [None, "bytes=70000-", "bytes=120000-"]

    def test_after_a_connection_that_broke_in_a_chunk(self, server, home):
        server.chunked, server.cut_after = True, 70_000
        with pytest.raises(FetchError, match="Cannot fetch"):
            fetch(remote(server), "weights")
        server.cut_after = None
        assert fetch(remote(server), "weights").read_bytes() == CONTENT

    def test_a_partial_file_of_something_else(self, server, home):
        partial(home, b"x" * 5000)
        with pytest.raises(FetchError, match="SHA-1 differs"):
            fetch(remote(server), "weights")
        assert not partial(home).exists()
        assert fetch(remote(server), "weights").read_bytes() == CONTENT


class TestAPlaceOfOnesOwn:
    def test_what_is_there_is_checked(self, server, tmp_path):
        (tmp_path / "net.bin").write_bytes(CONTENT)
        assert fetch_to(remote(server), tmp_path / "net.bin").read_bytes() == CONTENT
        assert server.asked == []
        (tmp_path / "net.bin").write_bytes(b"mine")
        with pytest.raises(FetchError, match=r"net\.bin is not the file that was published: move it away"):
            fetch_to(remote(server), tmp_path / "net.bin")
        assert (tmp_path / "net.bin").read_bytes() == b"mine"

    def test_by_sha_256(self, server, tmp_path):
        right = Remote("net.bin", server.url, hashlib.sha256(CONTENT).hexdigest())
        assert fetch_to(right, tmp_path / "net.bin").read_bytes() == CONTENT
        with pytest.raises(FetchError, match="its SHA-256 differs"):
            fetch_to(Remote("net.bin", server.url, "0" * 64), tmp_path / "other.bin")


class TestMirrors:
    NOBODY = "http://127.0.0.1:9/net.bin"

    def test_goes_on_with_what_the_first_began(self, server, tmp_path):
        (tmp_path / "net.bin.part").write_bytes(CONTENT[:1000])
        place = fetch_to(Remote("net.bin", self.NOBODY, SHA1, (server.url,)), tmp_path / "net.bin")
        assert place.read_bytes() == CONTENT
        assert server.asked == ["bytes=1000-"]

    def test_none_answers(self, server, tmp_path):
        server.status = 404
        with pytest.raises(FetchError, match=r"127\.0\.0\.1:9/net\.bin: .*refused; nor http://.*: Not Found\. Start"):
            fetch_to(Remote("net.bin", self.NOBODY, SHA1, (server.url,)), tmp_path / "net.bin")


class TestRefusals:
    def test_another_file_than_was_published(self, server, home):
        server.content = b"<html>Please log in</html>"
        with pytest.raises(FetchError, match=r"not what was published.*SHA-1"):
            fetch(remote(server), "weights")
        assert list((home / "weights").iterdir()) == []

    @pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (403, "Forbidden"), (500, "Internal Server")])
    def test_a_server_that_refuses(self, server, home, status, reason):
        server.status = status
        partial(home, CONTENT[:1000])
        with pytest.raises(FetchError) as caught:
            fetch(remote(server), "weights")
        assert partial(home).read_bytes() == CONTENT[:1000], "what is there is kept"
        said = str(caught.value)
        assert all(part in said for part in (server.url, reason, str(home / "weights" / "net.bin")))
        assert "\n" not in said

    def test_something_that_speaks_no_http_and_only_the_web(self, home, monkeypatch):
        def silent(*_, **__):
            raise fetching.HTTPException("what is this?")

        monkeypatch.setattr(fetching, "urlopen", silent)
        said = {"http://127.0.0.1/net.bin": r"what is this\?"}
        said |= dict.fromkeys(("file:///etc/passwd", "ftp://example.org/net.bin", "net.bin"), "http:// or https://")
        for url, reason in said.items():
            with pytest.raises(FetchError, match=reason):
                fetch(Remote("net.bin", url, SHA1), "weights")

    def test_a_cache_that_cannot_be_written(self, server, tmp_path, monkeypatch):
        (tmp_path / "taken").write_text("a file")
        monkeypatch.setenv("EXCITE_HOME", str(tmp_path / "taken"))
        with pytest.raises(FetchError, match="taken"):
            fetch(remote(server), "weights")
        assert server.asked == []
