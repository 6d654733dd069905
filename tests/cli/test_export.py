"""``excite export`` as a user meets it: files, what it prints, and one line for every mistake."""

import re
from functools import cache
from pathlib import Path

import pytest
from PIL import Image
from skimage import data

from excite.export.formats import program
from excite.export.trace import trace_map

DOCS = Path(__file__).parents[2] / "docs" / "export.md"

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def test_torch_export_writes_a_file_too_and_none_that_does_not_agree(excite, model, here, monkeypatch):
    """Written twice, and not a third time: what is there stays in place.

    For one size, which is quick; files of torch.export for all sizes are seen in tests/export. The graph is made once.
    """
    made = []

    def trace_once(*given):
        made[:] = made or [trace_map(*given)]
        return made[0]

    monkeypatch.setattr("excite.export.export.trace_map", trace_once)
    monkeypatch.setattr("excite.export.formats.program", cache(program))
    command = ("export", model, "--pt2", "map.pt2", "--no-dynamic")
    assert excite(*command).code == 0
    assert "checked on 1 image: the map differs by at most" in excite(*command).out
    before = Path("map.pt2").read_bytes()
    monkeypatch.setattr("excite.export.export.LIMIT", -1.0)
    assert "the file differs from the library by" in excite(*command).complaint
    assert Path("map.pt2").read_bytes() == before
    assert [path.name for path in here.iterdir()] == ["map.pt2"]


def test_the_embedded_network_and_the_example_of_the_docs(excite, here):
    """End to end, once: the classifier that comes with excite, and what the docs say to do with its file.

    For one size: that files of all sizes are right is seen on small networks, in a fraction of the time.
    """
    Image.fromarray(data.chelsea()).save("photo.jpg")
    ended = excite(
        "export", "efficientnet-lite0", "--onnx", "map.onnx", "--check", "photo.jpg", "--json", "--no-dynamic"
    )
    assert ended.answers[0]["sizes"]["serves"] == "224 x 224 only"
    assert ended.answers[0]["agreement"]["map"] < 1e-5
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    found = {}
    exec(example, found)  # noqa: S102 - it is ours
    assert found["attention"].shape == (1, 7, 7)
    assert found["attention"].max() > 0
