"""Networks of transformers and open_clip, tiny and at random, in folders as their own packages write them."""

import json
from pathlib import Path

import torch

from excite.models.sources import torchvision_models

SIDE, LENGTH = 32, 64
SIGNS = "abcdefghijklmnopqrstuvwxyz.,0123456789"
PARTS = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def transformers():
    torchvision_models()  # which it imports
    import transformers

    return transformers


def tokenizer(folder):
    """CLIP's, with letters for words."""
    words = [*SIGNS, *(f"{sign}</w>" for sign in SIGNS), "<|startoftext|>", "<|endoftext|>"]
    Path(folder, "vocab.json").write_text(json.dumps({word: k for k, word in enumerate(words)}))
    Path(folder, "merges.txt").write_text("#version: 0.2\n")
    files = str(folder / "vocab.json"), str(folder / "merges.txt")
    return len(words), transformers().CLIPTokenizer(*files, model_max_length=LENGTH)


def clip_folder(folder):
    hub = transformers()
    folder.mkdir(parents=True)
    size, words = tokenizer(folder)
    text = {"vocab_size": size, "max_position_embeddings": LENGTH, "bos_token_id": size - 2, "eos_token_id": size - 1}
    config = hub.CLIPConfig(
        text_config=PARTS | text,
        vision_config=PARTS | {"image_size": SIDE, "patch_size": 8},
        projection_dim=12,
    )
    torch.manual_seed(0)
    hub.CLIPModel(config).save_pretrained(folder)
    images = hub.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    hub.CLIPProcessor(images, words).save_pretrained(folder)
    return folder


def siglip_folder(folder):
    """With the tokenizer of CLIP: its own needs a model of sentence pieces."""
    hub = transformers()
    folder.mkdir(parents=True)
    size, words = tokenizer(folder)
    config = hub.SiglipConfig(
        text_config=PARTS | {"vocab_size": size, "max_position_embeddings": LENGTH, "projection_size": 16},
        vision_config=PARTS | {"image_size": SIDE, "patch_size": 8},
    )
    torch.manual_seed(0)
    model = hub.SiglipModel(config)
    with torch.no_grad():
        model.logit_bias.fill_(-3.0)
    model.save_pretrained(folder)
    hub.SiglipImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    words.model_input_names = ["input_ids"]  # no mask, as that of SigLIP
    words.save_pretrained(folder)
    return folder


def resnet_folder(folder, words=("cat", "dog, hound")):
    hub = transformers()
    names = dict(enumerate(words))
    config = hub.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", id2label=names,
        label2id={name: unit for unit, name in names.items()},
    )  # fmt: skip
    torch.manual_seed(0)
    hub.ResNetForImageClassification(config).half().save_pretrained(folder)  # as many files are
    hub.ConvNextImageProcessor(size={"shortest_edge": 96}, crop_pct=0.9).save_pretrained(folder)
    return folder


def open_clip_folder(folder, **more):
    torchvision_models()
    import open_clip
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    text = {"context_length": LENGTH, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    vision = {"image_size": SIDE, "layers": 2, "width": 16, "patch_size": 8, "head_width": 8} | more.pop("vision", {})
    facts = {"embed_dim": 12, "vision_cfg": vision, "text_cfg": text, **more}
    prepare = {"mean": [0.4] * 3, "std": [0.2] * 3, "interpolation": "bicubic", "resize_mode": "shortest"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": facts, "preprocess_cfg": prepare}))
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
    save_file(
        {name: own.contiguous() for name, own in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )
    return folder
