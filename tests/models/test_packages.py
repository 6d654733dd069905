"""torchvision and timm where they are missing, broken, or built for another torch: small ones in their place."""

import os
import subprocess
import sys

import pytest

from excite.errors import ModelError
from excite.models import load
from excite.models import sources as packages

NEEDS_OPERATOR = """
import torch
try:
    torch._C._jit_get_schemas_for_operator("torchvision::nms")[0]
except (IndexError, RuntimeError):
    raise RuntimeError("operator torchvision::nms does not exist") from None
"""
FIND = """
import warnings
from excite.models import sources as packages
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(packages.timm_models().__name__, packages.torchvision_models().__name__, packages.timm_models().__name__)
print(*[f"{warning.category.__name__}: {warning.message}" for warning in said], sep="\\n")
"""


def write(folder, **packages_):
    for name, content in packages_.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(content)
        (folder / name / "models.py").write_text("")


@pytest.fixture
def instead(tmp_path, monkeypatch):
    """Puts packages in the place of the real ones."""

    def forget():
        real = {name: part for name, part in sys.modules.items() if name.partition(".")[0] in {"torchvision", "timm"}}
        for name in real:
            del sys.modules[name]
        packages.torchvision_models.cache_clear()
        packages.timm_models.cache_clear()
        return real

    real = forget()
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda **contents: write(tmp_path, **contents)
    forget()
    sys.modules.update(real)


def test_operators_for_another_torch_are_left_out_and_that_is_said_once(tmp_path):
    """In a process of its own, since operators once declared stay."""
    write(tmp_path, torchvision=NEEDS_OPERATOR, timm="import torchvision")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FIND]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)  # noqa: S603
    names, *said = ended.stdout.strip().splitlines()
    assert names == "timm torchvision.models timm"
    assert len(said) == 1
    assert said[0].startswith("ReplacedOperatorsWarning: torchvision's compiled operators do not fit this torch")


@pytest.mark.parametrize(("package", "kind"), [("torchvision", "OSError"), ("timm", "ImportError")])
def test_a_broken_one_is_told_in_one_line(instead, package, kind):
    broken = f"raise {kind}('libcudart.so.12: cannot open\\nsecond line')"
    instead(**{"torchvision": "", "timm": "", package: broken})
    with pytest.raises(ModelError) as caught:
        load(f"{package}:resnet18")
    assert (
        str(caught.value)
        == f"{package} cannot be imported: libcudart.so.12: cannot open. Install the one made for your torch."
    )


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_missing_one_is_told_with_what_to_install(instead, package, monkeypatch):
    look = packages.importlib.util.find_spec
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None if name == package else look(name))
    with pytest.raises(ModelError, match=rf"{package} is not installed: pip install 'excite\[{package}\]'"):
        load(f"{package}:resnet18")
