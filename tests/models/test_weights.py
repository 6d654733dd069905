"""Weights in files: read without running anything in them, and put into a network or refused in one line."""

import io
import os
import pickle
import random
import time
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from excite.errors import ModelError
from excite.models.weights import fill, fill_from_caffe, fingerprint, other_classes, read_tensors


class Tiny(nn.Module):
    def __init__(self, classes=5, width=4):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, pictures):
        return self.fc(self.bn1(self.conv1(pictures)).relu().mean(dim=(2, 3)))


def trained(seed=0, classes=5):
    """A network in eval mode whose every number is one of its own."""
    torch.manual_seed(seed)
    network = Tiny(classes)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                tensor.normal_().mul_(0.3)
                tensor.add_(1 if "var" in name or name == "bn1.weight" else 0)
    return network.eval()


def answers(network):
    pictures = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        return network(pictures)


def filled(path):
    with torch.device("meta"):
        network = Tiny()
    fill(network, read_tensors(path), str(path))
    return network


def message(path, act=read_tensors):
    with pytest.raises(ModelError) as caught:
        act(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def prefixed(state, *prefixes):
    return {"".join(prefixes) + name: tensor for name, tensor in state.items()}


WRAPPINGS = {
    "plain": lambda state: state,
    "both": lambda state: prefixed(state, "module.", "_orig_mod."),
    "Lightning": lambda state: {"state_dict": prefixed(state, "model."), "epoch": 3, "global_step": 70},
    "model_state_dict": lambda state: {"epoch": 1, "model_state_dict": prefixed(state, "module.")},
    "without counters": lambda state: {name: value for name, value in state.items() if "tracked" not in name},
    "parameters": lambda state: {name: nn.Parameter(v, requires_grad=False) for name, v in state.items()},
}


class TestReading:
    @pytest.mark.parametrize("wrapping", WRAPPINGS)
    def test_pickles(self, tmp_path, wrapping):
        network = trained()
        torch.save(WRAPPINGS[wrapping](network.state_dict()), tmp_path / "x.pth")
        again = filled(tmp_path / "x.pth")
        assert torch.equal(answers(again), answers(network))
        assert not again.training
        assert not any(tensor.is_meta for tensor in again.state_dict().values())

    @pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_precisions_become_the_networks(self, tmp_path, kind):
        network = trained().to(kind)
        torch.save(network.state_dict(), tmp_path / "x.pth")
        again = filled(tmp_path / "x.pth")
        assert {tensor.dtype for tensor in again.parameters()} == {torch.float32}
        assert torch.equal(answers(again), answers(network.float()))

    def test_rows_of_eight_bits_are_scaled(self, tmp_path):
        network = trained()
        state = network.state_dict()
        for name in ("conv1.weight", "fc.weight"):
            scale = state[name].flatten(1).abs().amax(1) / 127
            rows = scale.reshape(-1, *[1] * (state[name].dim() - 1))
            state |= {name: (state[name] / rows).round().to(torch.int8), name + ".scale": scale}
        save_file(state, tmp_path / "x.safetensors")
        again = filled(tmp_path / "x.safetensors")
        torch.testing.assert_close(answers(again), answers(network), atol=0.02, rtol=0.02)
        expected = state["fc.weight"].float() * state["fc.weight.scale"][:, None]
        assert torch.equal(again.fc.weight, expected)

    def test_eight_bits_without_scales(self, tmp_path):
        state = trained().state_dict()
        state["fc.weight"] = torch.ones(5, 4, dtype=torch.int8)
        for scale in (None, torch.ones(4), torch.ones(5, 1)):
            save_file(state if scale is None else {**state, "fc.weight.scale": scale}, tmp_path / "x.safetensors")
            with pytest.raises(ModelError, match=r"fc\.weight is int8 without one scale for each row"):
                read_tensors(tmp_path / "x.safetensors")


class Payload:
    """What a wicked file would do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class TestWickedFiles:
    @pytest.mark.parametrize("zipped", [True, False])
    def test_no_program_in_a_file_is_run(self, tmp_path, zipped):
        proof, path = tmp_path / "it ran", tmp_path / "x.pth"
        content = {**trained().state_dict(), "wicked": Payload(proof)}
        torch.save(content, path, _use_new_zipfile_serialization=zipped)
        assert "could run any program" in message(path)
        assert "state_dict()" in message(path, fingerprint)
        assert not proof.exists()
        torch.load(path, weights_only=False)  # the payload is a real one
        assert proof.is_dir()

    @pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
    @pytest.mark.filterwarnings("ignore:'torch.load' received a zip file")
    def test_a_whole_network_is_refused_with_a_hint(self, tmp_path):
        torch.save(trained(), tmp_path / "x.pth")
        torch.jit.save(torch.jit.trace(trained(), torch.zeros(1, 3, 9, 9)), tmp_path / "x.pt")
        for name in ("x.pth", "x.pt"):
            assert "save the network's state_dict()" in message(tmp_path / name)

    @pytest.mark.parametrize("content", [[1, 2], 7, {}, {"a": 1}, {"state_dict": {}}, torch.ones(3), {"epoch": 1}])
    def test_no_state_dict(self, tmp_path, content):
        torch.save(content, tmp_path / "x.pth")
        assert "holds no state dict" in message(tmp_path / "x.pth")

    @pytest.mark.parametrize("kind", ["zip", "pickle", "safetensors"])
    def test_cut_off_or_damaged_anywhere(self, tmp_path, kind):
        """Cut, it is refused; with bytes changed at random, it is read as something or refused; never another error."""
        whole, damaged = tmp_path / "whole", tmp_path / "damaged"
        if kind == "safetensors":
            save_file({"a": torch.ones(2, 2)}, whole)
        else:
            torch.save({"a": torch.ones(2, 2)}, whole, _use_new_zipfile_serialization=kind == "zip")
        content, chance, refused = whole.read_bytes(), random.Random(1), []
        for length in {1, 2, 7, 8, 9, 10, 20, *range(64, len(content), len(content) // 10), len(content) - 1}:
            damaged.write_bytes(content[:length])
            message(damaged)
        for _ in range(400):
            changed = bytearray(content)
            for _ in range(chance.choice([1, 2, 5])):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            damaged.write_bytes(changed)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read_tensors(damaged)
            except ModelError as error:
                refused.append(str(error))
        assert len(refused) > 50
        assert not any("\n" in said for said in refused)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "is empty"),
            (b"<!DOCTYPE html><html>Not found</html>", "is a web page"),
            (b"\n  <?xml version='1.0'?>", "is a web page"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
            (b"just some words", "holds no weights"),
            (b"\x93NUMPY\x01\x00", "holds no weights"),
            (b"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "damaged"),
            (b"PK\x03\x04 and then nothing", "cannot be read"),
        ],
    )
    def test_what_else_may_lie_there(self, tmp_path, content, words):
        path = tmp_path / "x.pth"
        path.write_bytes(content)
        assert words in message(path)

    def test_a_file_that_may_not_be_read(self, tmp_path, monkeypatch):
        (tmp_path / "x.pth").write_bytes(b"PK")

        def refused(*_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refused)
        assert "Permission denied" in message(tmp_path / "x.pth")


class TestFilling:
    def refused(self, tensors):
        network = trained(seed=1)
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        with pytest.raises(ModelError) as caught:
            fill(network, tensors, "x.pth")
        assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
        assert str(caught.value).startswith("x.pth does not fit Tiny: ")
        return str(caught.value).removeprefix("x.pth does not fit Tiny: ")

    def test_what_is_missing_and_what_is_too_much(self):
        state = trained().state_dict()
        fc = state.pop("fc.weight")
        assert self.refused(state) == "it lacks fc.weight."
        many = {f"head.{number}": fc for number in range(5)}
        assert self.refused(state | many) == "it lacks fc.weight; it has besides head.0, head.1, head.2 and 2 more."
        assert self.refused({"x": fc}).startswith("it lacks bn1.bias, bn1.running_mean, bn1.running_var and 4 more")
        state = trained().state_dict() | {"conv1.weight": torch.ones(4, 3, 5, 5)}
        assert self.refused(state) == "conv1.weight is [4, 3, 5, 5] in the file and [4, 3, 3, 3] in the network."

    def test_a_network_whose_own_names_have_the_prefix(self):
        network = nn.Sequential(OrderedDict(model=nn.Linear(2, 2)))
        state = {"model.weight": torch.ones(2, 2), "model.bias": torch.zeros(2)}
        fill(network, state, "x")
        assert torch.equal(network.model.weight, torch.ones(2, 2))

    def test_weights_of_caffe_need_a_caffe_network(self, tmp_path):
        with pytest.raises(ModelError, match=r"x\.caffemodel is of a Caffe network, but Tiny is none: name "):
            fill_from_caffe(Tiny(), tmp_path / "x.caffemodel")


class TestOtherClasses:
    def test_told_by_the_output_layer_of_the_same_network(self):
        state = trained(classes=9).state_dict()
        assert other_classes(state, Tiny()) == 9
        assert other_classes(prefixed(state, "module."), Tiny()) == 9
        assert other_classes(state, Tiny(9)) is None
        assert other_classes(Tiny(width=7).state_dict(), Tiny()) is None
        assert other_classes({"x": torch.ones(2)}, Tiny()) is None
        state = trained().state_dict() | {"fc.weight": torch.ones(9, 4), "fc.bias": torch.ones(8)}
        assert other_classes(state, Tiny()) is None


class TestFingerprint:
    def test_made_of_names_kinds_and_shapes(self, tmp_path):
        def of(state, kind="safetensors"):
            path = tmp_path / f"x.{kind}"
            save_file(state, path) if kind == "safetensors" else torch.save(state, path)
            return fingerprint(path)

        state = trained().state_dict()
        mark = of(state)
        assert len(mark) == 16
        assert of(trained(seed=9).state_dict()) == mark
        assert of(dict(reversed(state.items()))) == mark
        assert of(state, "pth") == mark
        others = [
            trained(classes=6).state_dict(),
            prefixed(state, "module."),
            {name: value for name, value in state.items() if name != "fc.bias"},
            state | {"fc.bias": state["fc.bias"].half()},
            state | {"fc.weight": state["fc.weight"].T.contiguous()},
        ]
        assert len({mark, *map(of, others)}) == 6


LONG = b"\x80\x02cos\n" + b"x" * 200_000 + b"\n."
UNENDED = b"\x80\x02cos\n" + b"x" * 200_000


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return file.getvalue()


def legacy(content):
    """As torch wrote files before 2020: a magic number, a version, the system, and then the pickle."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    return b"".join(pickle.dumps(part, protocol=2) for part in head) + content


@pytest.mark.parametrize("content", [LONG, UNENDED], ids=["long", "unended"])
@pytest.mark.parametrize("packed", [zipped, legacy], ids=["zip", "before 2020"])
def test_it_is_refused_at_once(packed, content, tmp_path):
    (tmp_path / "long.pth").write_bytes(packed(content))
    began = time.process_time()
    with pytest.raises(ModelError, match="more than tensors"):
        read_tensors(tmp_path / "long.pth")
    assert time.process_time() - began < 2
