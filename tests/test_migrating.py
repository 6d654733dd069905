"""The lines of docs/migrating.md run, and what they say is equal to another package's result is."""

import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import excite

PAGE = (Path(__file__).parents[1] / "docs" / "migrating.md").read_text(encoding="utf-8")
BLOCKS = {
    section.partition("\n")[0]: re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    for section in PAGE.split("\n## ")[1:]
}


class Net(nn.Module):
    """A plain network with the layers of the page."""

    def __init__(self):
        super().__init__()
        self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(nn.Conv2d(*channels, 3, padding=1, stride=2), nn.ReLU())
            for channels in ((3, 8), (8, 8), (8, 8))
        )
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 1000)

    def forward(self, x):
        return self.fc(self.pool(self.layer4(self.layer3(self.layer2(x)))).flatten(1))


@pytest.fixture
def given():
    torch.manual_seed(0)
    return {"net": Net().eval(), "x": torch.rand(2, 3, 32, 32), "torch": torch, "excite": excite}


def run(code, given):
    exec(code, given)  # noqa: S102 - our own page
    return given


def test_every_package_has_its_lines_and_ours():
    assert {name: len(blocks) for name, blocks in BLOCKS.items()} == {
        "captum": 4,
        "pytorch-grad-cam": 2,
        "TorchRay": 2,
        "zennit": 2,
    }


def test_our_lines_run(given):
    for blocks in BLOCKS.values():
        for ours in blocks[1::2]:
            run(ours, given)
    assert given["maps"].shape == (2, 1, 224, 224)
    assert given["planes"].shape == (2, 32, 32)
    assert given["plain"].shape == given["contrast"].shape == (2, 1, 8, 8)
    assert not torch.allclose(given["plain"], given["contrast"])


@pytest.mark.filterwarnings("ignore::UserWarning")  # captum's, about inputs without gradients
def test_captum(given):
    pytest.importorskip("captum")
    gradcam, _, lrp, ours = BLOCKS["captum"]
    theirs = run(gradcam, given)["small"].detach()
    found = excite.ExcitationBackprop(given["net"], given["net"].layer3, method="grad-cam").attribute(given["x"], 281)
    scale = theirs.amax((1, 2, 3), keepdim=True)
    assert bool((scale > 0).all())
    torch.testing.assert_close(found / found.amax((1, 2, 3), keepdim=True), theirs / scale, atol=1e-4, rtol=0)
    theirs = run(lrp, given)["relevance"].detach()
    torch.testing.assert_close(run(ours, given)["relevance"].detach(), theirs, atol=1e-6, rtol=1e-4)


def test_zennit(given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from excite.models.sources import torchvision_models

        torchvision_models()  # zennit imports torchvision, which may not fit this torch
    pytest.importorskip("zennit")
    theirs, ours = BLOCKS["zennit"]
    expected = run(theirs, given)["relevance"]
    found = run("\n".join(ours.splitlines()[:2]), given)["relevance"]
    assert float(expected.sum()) == pytest.approx(2, abs=1e-4)  # of each image a unit signal arrives
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
