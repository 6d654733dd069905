"""``hf:`` and ``open_clip:`` with the real packages, on tiny random networks, and without a way to the hub."""

import json
import logging
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hub_folders import SIDE, clip_folder, open_clip_folder, resnet_folder, siglip_folder, transformers
from PIL import Image

import excite
from excite.errors import ConceptError, ModelError
from excite.models import Choice, find_card, load
from excite.models.dual_encoder import prompts
from excite.vocabulary import imagenet_labels

HF = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is missing: pip install 'excite[hf]'")
OPEN_CLIP = pytest.mark.skipif(
    find_spec("open_clip") is None, reason="open_clip is missing: pip install 'excite[open-clip]'"
)
pytestmark = pytest.mark.filterwarnings("ignore::excite.errors.LostSignalWarning")  # the networks know nothing
PHRASE = "a man in a hat"


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Both packages warn of many things when they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if find_spec("transformers"):
            transformers().logging.disable_progress_bar()
        if find_spec("open_clip"):
            import open_clip  # noqa: F401 - see above
        yield


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    """Nothing is fetched, and rows are cached here."""
    import socket

    monkeypatch.setenv("EXCITE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(OSError("no network")))


@pytest.fixture(scope="module")
def image():
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8))


def wrong(name, **more):
    with pytest.raises(ModelError) as caught:
        load(name, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def chance(logits, bias):
    """The probability of the last."""
    return logits.softmax(0)[-1] if bias is None else logits[-1].sigmoid()


@HF
@pytest.mark.parametrize("make", [clip_folder, siglip_folder])
def test_a_dual_encoder_of_transformers_answers_as_its_own_package_says(make, tmp_path, image):
    hub, folder = transformers(), make(tmp_path / "folder")
    classifier = load(f"hf:{folder}")
    model = hub.AutoModel.from_pretrained(folder).eval()
    words, images = hub.AutoTokenizer.from_pretrained(folder), hub.AutoImageProcessor.from_pretrained(folder)
    names = [*classifier.labels, PHRASE]
    tokens = words([text for name in names for text in prompts(name)], padding="max_length", return_tensors="pt")
    with torch.no_grad():
        pixels = images(image, return_tensors="pt")["pixel_values"]
        both = model(pixel_values=pixels, **{name: tokens[name] for name in words.model_input_names})
    embeddings, rows = iter(both.text_embeds / both.text_embeds.norm(dim=1, keepdim=True)), []
    for name in names:
        mean = sum(next(embeddings) for _ in prompts(name))
        rows.append(mean / mean.norm())
    bias = getattr(model, "logit_bias", None)
    picture = both.image_embeds[0] / both.image_embeds[0].norm()
    wanted = model.logit_scale.detach().exp() * torch.stack(rows) @ picture
    wanted = wanted if bias is None else wanted + bias.detach()
    torch.testing.assert_close(classifier.prepared(image), pixels[0], atol=1e-5, rtol=0)
    classifier.labels.find(PHRASE)
    torch.testing.assert_close(classifier.logits(classifier.prepared(image)[None])[0], wanted, rtol=1e-4, atol=1e-4)
    (found,) = excite.attend(classifier, image, PHRASE)
    assert found.probability == pytest.approx(float(chance(wanted, bias)), rel=1e-3)
    assert not any("text" in name for name, _ in classifier.module.named_modules())
    given = hub.AutoProcessor.from_pretrained(folder) if make is clip_folder else None
    if given is not None:
        wrapped = excite.wrap(model, processor=given)
        assert excite.attend(wrapped, image, PHRASE)[0].probability == pytest.approx(found.probability, rel=1e-4)
    with pytest.raises(ModelError, match="needs its tokenizer"):
        excite.wrap(model, processor=images)
    with pytest.raises(ConceptError, match="longer than the text tower reads"):
        excite.attend(classifier, image, "a man in a red hat with a dog " * 3)


@HF
def test_an_image_classifier_of_transformers(tmp_path, image):
    folder = resnet_folder(tmp_path / "resnet")
    classifier = load(f"hf:{folder}")
    assert classifier.dtype == torch.float32
    assert [classifier.labels.synonyms(unit) for unit in (0, 1)] == [("cat",), ("dog", "hound")]
    hub = transformers()
    model = hub.AutoModelForImageClassification.from_pretrained(folder).float().eval()
    large = image.resize((96, 96))
    processor = hub.AutoImageProcessor.from_pretrained(folder)
    inputs = classifier.prepared(large)
    assert inputs.shape == (3, 96, 96)
    with torch.no_grad():
        wanted = model(inputs[None]).logits.softmax(1)[0, 1]
    (found,) = excite.attend(classifier, large, "hound")
    assert found.probability == pytest.approx(float(wanted), rel=1e-5)
    wrapped = excite.wrap(model, processor=processor)
    assert excite.attend(wrapped, large, "hound")[0].probability == pytest.approx(float(wanted), rel=1e-5)
    assert load(f"hf:{folder}", labels=["a", "b", "c"], weights="random").logits(inputs[None]).shape == (1, 3)
    before = Choice(f"hf:{folder}").key()
    (folder / "preprocessor_config.json").touch()
    assert Choice(f"hf:{folder}").key() != before  # results of other files are others


@HF
def test_the_labels_of_imagenet_have_kinds(tmp_path):
    every = imagenet_labels()
    words = [", ".join(every.synonyms(unit)) for unit in range(1000)]
    assert find_card(f"hf:{resnet_folder(tmp_path / 'resnet', words)}").labels().find("dog") == every.find("dog")


@HF
def test_networks_of_transformers_that_are_none(tmp_path):
    from safetensors.torch import load_file, save_file

    hub = transformers()
    folder = resnet_folder(tmp_path / "resnet")
    tensors = load_file(folder / "model.safetensors")
    del tensors["classifier.1.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "no weights for classifier.1.weight" in wrong(f"hf:{folder}")
    facts = json.loads((folder / "config.json").read_text())
    for classes in (["ResNetModel"], ["BertForMaskedLM"]):
        (folder / "config.json").write_text(json.dumps(facts | {"architectures": classes}))
        assert f"{classes[0]} is no image classifier and no dual encoder" in wrong(f"hf:{folder}")
    (folder / "config.json").write_text("{")
    assert "Cannot fetch the configuration" in wrong(f"hf:{folder}")
    assert "folder without config.json" in wrong(f"hf:{tmp_path}")
    assert "stands before a name" in wrong("hf:")
    said = wrong("hf:openai/clip-vit-base-patch32")
    assert "no way to huggingface.co, is this machine online? Give a folder that has it: hf:FOLDER." in said
    assert hub.utils.logging.is_progress_bar_enabled() is False  # as it was


@HF
def test_code_that_comes_with_a_network_is_not_run(tmp_path):
    folder = resnet_folder(tmp_path / "resnet")
    facts = json.loads((folder / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForImageClassification": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(facts | own))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Own: pass\n")
    assert "Cannot fetch the configuration" in wrong(f"hf:{folder}")
    assert not (tmp_path / "ran").exists()


@OPEN_CLIP
@pytest.mark.parametrize(
    "more",
    [{}, {"init_logit_bias": -3.0, "custom_text": True}, {"vision": {"layers": [1, 1, 1, 1], "patch_size": None}}],
    ids=["ViT", "SigLIP", "ResNet"],
)
def test_a_dual_encoder_of_open_clip_answers_as_its_own_package_says(more, tmp_path, image):
    import open_clip

    bias = more.get("init_logit_bias")
    folder = open_clip_folder(tmp_path / "folder", **more)
    classifier = load(f"open_clip:{folder}")
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    words = open_clip.get_tokenizer(f"local-dir:{folder}")
    inputs = transform(image)[None]
    torch.testing.assert_close(classifier.prepared(image), inputs[0], atol=1e-5, rtol=0)
    with torch.no_grad():
        picture = model.eval().encode_image(inputs, normalize=True)[0]
        rows = [
            model.encode_text(words(prompts(name)), normalize=True).mean(0) for name in [*classifier.labels, PHRASE]
        ]
        wanted = model.logit_scale.exp() * torch.stack([row / row.norm() for row in rows]) @ picture + (bias or 0.0)
    (found,) = excite.attend(classifier, image, PHRASE)
    assert found.probability == pytest.approx(float(chance(wanted, bias)), rel=1e-3)
    again = load(f"open_clip:{folder}", weights=folder / "open_clip_model.safetensors", labels=["cat", "a dog"])
    assert list(again.labels) == ["cat", "a dog"]
    assert logging.root.manager.disable == logging.NOTSET


@OPEN_CLIP
def test_networks_of_open_clip_that_are_none(tmp_path, caplog):
    assert "Did you mean open_clip:ViT-B-32" in wrong("open_clip:VIT-B-32")
    assert "there are: open_clip:ViT-B-32/openai" in wrong("open_clip:ViT-B-32/nothing")
    assert "no way to huggingface.co, is this machine online?" in wrong("open_clip:RN50")
    assert "config file missing" in wrong(f"open_clip:{tmp_path}")
    folder = open_clip_folder(tmp_path / "folder")
    (folder / "open_clip_model.safetensors").unlink()
    caplog.clear()
    assert "Cannot fetch the weights" in wrong(f"open_clip:{folder}")
    assert not caplog.records


@pytest.mark.parametrize(("name", "package"), [("hf:x", "transformers"), ("open_clip:x", "open_clip")])
def test_a_missing_package_is_one_line(name, package, monkeypatch):
    from excite.models import hub, sources

    for module in (hub, sources):
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda found: None if found == package else object())
    extra = name.partition(":")[0].replace("_", "-")
    assert wrong(name) == f"{package} is not installed: pip install 'excite[{extra}]'."
