"""The pages of experiments: which are found, and that nothing else is served."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from excite.web.errors import ERROR_HANDLERS
from excite.web.files import find_reports, report_routes


@pytest.fixture
def folder(tmp_path):
    """Reports some folders deep, with files beside them, and a secret beside those."""
    out = tmp_path / "out"
    for place in ("voc 2007", "a/b/grounding", "a/b/c/d/too-deep", ".hidden"):
        (out / place).mkdir(parents=True)
        (out / place / "pointing.html").write_text(f"<style>x</style><title>Pointing &amp; {place}</title>")
    (out / "voc 2007/records.jsonl").write_text("{}")
    (out / "voc 2007/table.csv").write_text("a,b")
    (out / "voc 2007/pictures").mkdir()
    (out / "voc 2007/pictures/cat (1).png").write_bytes(b"\x89PNG")
    (out / "voc 2007/other.html").write_text("beside it")
    (out / "localization.html").write_text("no title")
    (tmp_path / "secret.txt").write_text("secret")
    (out / "secret.txt").write_text("secret")
    return out


@pytest.fixture
def asked(folder):
    app = FastAPI(exception_handlers=ERROR_HANDLERS)
    app.include_router(report_routes(find_reports(folder)))
    return TestClient(app, "http://localhost")


def test_reports_are_found_by_their_names_a_few_folders_deep(folder):
    found = find_reports(folder)
    assert [(one.name, one.title) for one in found] == [
        ("1-localization", "localization"),
        ("2-a-b-grounding-pointing", "Pointing & a/b/grounding"),
        ("3-voc-2007-pointing", "Pointing & voc 2007"),
    ]
    assert found[2].url == "/reports/3-voc-2007-pointing/pointing.html"
    assert find_reports(folder / "nothing") == []


def test_no_more_than_so_many(tmp_path):
    for k in range(60):
        (tmp_path / f"{k:02}").mkdir()
        (tmp_path / f"{k:02}/grounding.html").write_text("")
    assert len(find_reports(tmp_path)) == 50


def test_a_report_and_the_files_beside_it(asked):
    base = "/reports/3-voc-2007-pointing"
    page = asked.get(f"{base}/pointing.html")
    assert "<title>" in page.text
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("sandbox")
    assert asked.get(f"{base}/table.csv").text == "a,b"
    assert asked.get(f"{base}/pictures/cat (1).png").content == b"\x89PNG"


@pytest.mark.parametrize(
    "path",
    [
        "3-voc-2007-pointing/records.jsonl",
        "3-voc-2007-pointing/..%2fsecret.txt",
        "3-voc-2007-pointing/..%2f..%2fsecret.txt",
        "3-voc-2007-pointing/%2fetc%2fpasswd.txt",
        "3-voc-2007-pointing/pictures",
        "3-voc-2007-pointing/pictures.txt",
        "3-voc-2007-pointing/a%00.txt",
        "3-voc-2007-pointing/" + "a" * 300 + ".txt",
        "3-voc-2007-pointing/link.txt",
        "3-voc-2007-pointing/folder/secret.txt",
        "3-voc-2007-pointing/disguised.txt",
        "3-voc-2007-pointing/circle.txt",
        "3-voc-2007-pointing/gone.html",
        "other/pointing.html",
    ],
)
def test_nothing_else_is_served(asked, folder, path):
    """Also not through links, which lead out of the folder, into a circle, or to a file of another kind."""
    place = folder / "voc 2007"
    (place / "link.txt").symlink_to(folder.parent / "secret.txt")
    (place / "folder").symlink_to(folder.parent)
    (place / "disguised.txt").symlink_to(place / "records.jsonl")
    (place / "circle.txt").symlink_to(place / "circle.txt")
    answer = asked.get(f"/reports/{path}")
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]


def test_a_link_within_the_folder_is_fine(asked, folder):
    (folder / "voc 2007/same.csv").symlink_to("table.csv")
    assert asked.get("/reports/3-voc-2007-pointing/same.csv").text == "a,b"
