"""What is served from files: the pages of experiments, the examples, and nothing else."""

import re

import pytest
from fastapi import FastAPI
from PIL import Image
from servers import colour_service
from starlette.testclient import TestClient

from excite.methods import METHODS
from excite.web.errors import ERROR_HANDLERS
from excite.web.page import find_examples, find_reports, page_html, report_routes

ELSEWHERE = (
    "records.jsonl ..%2fsecret.txt ..%2f..%2fsecret.txt %2fetc%2fpasswd.txt pictures pictures.txt a%00.txt link.txt "
    "folder/secret.txt disguised.txt circle.txt gone.html"
).split()


@pytest.fixture
def folder(tmp_path):
    """Reports some folders deep, with files beside them, and a secret beside those."""
    out = tmp_path / "out"
    for place in ("voc 2007/pictures", "voc 2007", "a/b/grounding", "a/b/c/d/too-deep", ".hidden"):
        (out / place).mkdir(parents=True, exist_ok=True)
        (out / place / "pointing.html").write_text(f"<style>x</style><title>Pointing &amp; {place}</title>")
    (out / "voc 2007/pictures/pointing.html").rename(out / "voc 2007/pictures/cat (1).png")
    files = {"voc 2007/records.jsonl": "{}", "voc 2007/table.csv": "a,b", "localization.html": "no title"}
    for name, text in {**files, "voc 2007/notes.md": "# a", "../secret.txt": "", "secret.txt": ""}.items():
        (out / name).write_text(text)
    return out


@pytest.fixture
def asked(folder):
    app = FastAPI(exception_handlers=ERROR_HANDLERS)
    app.include_router(report_routes(find_reports(folder)))
    return TestClient(app, "http://localhost")


def test_reports_are_found_by_their_names_a_few_folders_deep(folder):
    found = find_reports(folder)
    assert {one.name: one.title for one in found} == {
        "1-localization": "localization",
        "2-a-b-grounding-pointing": "Pointing & a/b/grounding",
        "3-voc-2007-pointing": "Pointing & voc 2007",
    }
    assert found[2].url == "/reports/3-voc-2007-pointing/pointing.html"
    assert find_reports(folder / "nothing") == []
    for k in range(60):
        (folder / f"{k:02}").mkdir()
        (folder / f"{k:02}/grounding.html").write_text("")
    assert len(find_reports(folder)) == 50


def test_a_report_and_the_files_beside_it(asked, folder):
    (folder / "voc 2007/same.csv").symlink_to("table.csv")
    kinds = {"pointing.html": "text/html", "table.csv": "text/csv", "same.csv": "text/csv", "notes.md": "text/plain"}
    for name, kind in {**kinds, "pictures/cat (1).png": "image/png"}.items():
        answer = asked.get(f"/reports/3-voc-2007-pointing/{name}")
        assert (answer.status_code, answer.content) == (200, (folder / "voc 2007" / name).read_bytes())
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["content-security-policy"].startswith("sandbox")


def test_nothing_else_is_served(asked, folder):
    """Also not through links, which lead out of the folder, into a circle, or to a file of another kind."""
    place = folder / "voc 2007"
    (place / "link.txt").symlink_to(folder.parent / "secret.txt")
    (place / "folder").symlink_to(folder.parent)
    (place / "disguised.txt").symlink_to(place / "records.jsonl")
    (place / "circle.txt").symlink_to(place / "circle.txt")
    for path in (*(f"3-voc-2007-pointing/{name}" for name in (*ELSEWHERE, "a" * 300 + ".txt")), "other/pointing.html"):
        answer = asked.get(f"/reports/{path}")
        assert (answer.status_code, list(answer.json())) == (404, ["error"]), path


def test_examples_of_the_same_name_and_of_odd_names(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("cat.jpg", "cat.png", "b/cat.png", "${alert(1)}.png", "<b>{{x}}.png", "\udcff.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    found = find_examples(tmp_path)
    assert sorted(found) == ["${alert(1)}", "<b>{{x}}", "\\udcff", "cat", "cat (2)", "cat (3)"]
    page = page_html(colour_service(), [], found)
    assert 'data-example="&lt;b&gt;{{x}}"' in page
    assert "<b>{{" not in page
    assert all(letter.isprintable() or letter == "\n" for letter in page)


def test_six_methods_come_first_in_the_menu_the_others_for_comparison():
    menu = page_html(colour_service(), [], {}).partition('<select id="method-choice"')[2].partition("</select>")[0]
    first, _, rest = menu.partition('<optgroup label="for comparison">')
    names = re.compile(r'value="([^"]+)"')
    assert names.findall(first) == "usual excite extent c-mwp mwp grad-cam guided".split()
    assert names.findall(rest) == [name for name, method in METHODS.items() if not method.main]
