"""Tune the upper blocks of the embedded network together with its further output layers, and say how good they are.

git clone or fetch github.com/hai4h/cnn-edge-detection, then (get_coco_train2017.py lies in the shared tools):

python get_coco_train2017.py GIT_DIR pictures
zcat labels_train2017_all.jsonl.gz | grep captions > captions.jsonl
excite tags captions captions.jsonl --out captions.parquet
excite tags clean captions.parquet --out words.parquet --min-count 8 --min-tags 1 --keep-alphabetical --keep-similar
python recipes/tuned_network.py pictures labels_train2017_all.jsonl.gz words.parquet [--out FOLDER] [--workers 2]

1. The embeddings of all captions, words and names of objects by MiniLM, the text tower of ``open``.
2. The activations of ``blocks.7`` for one view of each picture, by onnxruntime: the pictures were squashed to squares,
   so most are stretched again (`SHAPES`), and some are enlarged, as small objects are seen from near.
3. One epoch on these: the blocks above, and the output layers for 80 objects (binary cross-entropy), for the words of
   captions (the same, where a picture has captions), and for the embedding (the objects and words by their rows, and
   each caption against others). ImageNet's output layer stays as published, and its answers to these pictures are kept
   by a divergence from those of the published network. The norms are part of the convolutions and not estimated anew.
4. Half of each weight is the moving average of that epoch, half the published one: what ImageNet taught is kept so,
   and evidence stays where it is. The output layers are then trained once more.
5. The files of the package are written, in half precision, the words in int8.
6. Measured on pictures that no step has seen (one in 22, by a hash of its name).

Each step is done once, activations and training are resumed. With MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_
at 17179869184 glibc gives no memory back between the steps, which makes training a third quicker.
"""

import argparse
import gzip
import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from excite.cli.console import progress
from excite.io.files import atomic_write, save_text
from excite.metrics.ranking import average_precision
from excite.models import load
from excite.models.architectures import HEADS, OPEN, SCALE, TUNED, head_labels
from excite.models.sentences import SentenceTower

FIRST = 8  # the block from which on the network is trained
SHAPES = (  # height, width, share of the pictures in percent, how many of these are used
    *((224, 224, 20, 22528), (224, 304, 35, 39424), (304, 224, 10, 11008)),
    *((320, 432, 20, 14592), (432, 320, 5, 0), (320, 320, 10, 0)),
)
CHUNK, BATCH, TOGETHER = 256, 64, 16  # pictures in a file; in a training step; in one forward pass
ASIDE = 22  # one picture in so many is kept aside
CONFUSED = (("teddy bear", "bear"), ("hot dog", "dog"))  # captions that name the first seem to name the second
FRUIT = r"\b(oranges|fruits?|citrus|juice|tangerines?|mandarins?|peel\w*|slices?)\b"  # in captions of an orange
FRUITS = ("apple", "banana")  # labels beside the fruit
RATES = {"trunk": 4e-4, "heads": 2e-3}
KEEP = 4.0  # the weight of ImageNet's answers; with 1, the network forgets a third more of them
SHARE = 0.5  # of the trained weights; the rest are the published ones
REFIT, EPOCHS = 2, 6  # every second file of activations, so often, for the output layers once more
WARM_UP, AVERAGE, OTHERS = 300, 0.998, 1024  # steps; decay of the moving average; captions that each is held against


def digits(text: str) -> int:
    """A number by a text, the same on every machine."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


@dataclass(frozen=True)
class Corpus:
    """The pictures, their objects, words and captions."""

    pictures: Path
    labels: Path
    words: Path
    out: Path

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The labels and captions of each picture."""
        lines = gzip.decompress(self.labels.read_bytes()).splitlines()
        return {row["file"]: row for row in map(json.loads, lines)}

    @cached_property
    def objects(self) -> list[str]:
        """The 80 objects."""
        return [names[0] for names in head_labels("everyday")]

    @cached_property
    def dictionary(self) -> list[str]:
        """The words of captions."""
        lines = self.words.with_suffix(".tags.csv").read_text(encoding="utf-8").splitlines()
        return [line.split(",")[0] for line in lines[1:]]

    @cached_property
    def words_of(self) -> dict[str, list[int]]:
        """The words of each picture with captions."""
        place = {word: k for k, word in enumerate(self.dictionary)}
        return {
            row["image"]: [place[word] for word in row["tags"] if word in place]
            for row in pq.read_table(self.words).to_pylist()
        }

    def is_aside(self, name: str) -> bool:
        """Whether a picture is only measured on."""
        return digits(name) % ASIDE == 0

    def truth(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Which objects a picture shows, and of which this is known."""
        shown, known = np.zeros(len(self.objects), np.float32), np.ones(len(self.objects), np.float32)
        labels = set(self.rows[name]["labels"])
        for label in labels:
            shown[self.objects.index(label)] = 1
        if "orange" in labels and not self._shows_fruit(name, labels):
            known[self.objects.index("orange")] = 0
        for first, second in CONFUSED:
            if {first, second} <= labels:
                known[self.objects.index(second)] = 0
        return shown, known

    def _shows_fruit(self, name: str, labels: set[str]) -> bool:
        """Whether "orange" is the fruit and not a colour, as far as captions or other labels say."""
        captions = self.rows[name].get("captions", ())
        return bool(re.search(FRUIT, " ".join(captions).lower())) if captions else not labels.isdisjoint(FRUITS)

    @cached_property
    def texts(self) -> dict[str, Tensor]:
        """The embeddings of captions, objects and words, computed once."""
        path = self.out / "texts.npz"
        if not path.exists():
            tower = SentenceTower()
            captions = [caption for row in self.rows.values() for caption in row.get("captions", ())]
            parts = [captions[start : start + BATCH] for start in range(0, len(captions), BATCH)]
            with torch.inference_mode():
                each = [tower.embed(tower.tokens(part)) for part in progress(parts, len(parts), "captions")]
            found = {
                "captions": functional.normalize(torch.cat(each), dim=1).half().numpy(),
                "objects": tower.write(self.objects).numpy(),
                "words": tower.write(self.dictionary).numpy(),
            }
            atomic_write(path, lambda file: np.savez(file, **found))
        with np.load(path) as stored:
            return {name: torch.from_numpy(stored[name].astype(np.float32)) for name in stored}

    @cached_property
    def captions_of(self) -> dict[str, range]:
        """The rows of each picture's captions."""
        found, start = {}, 0
        for name, row in self.rows.items():
            number = len(row.get("captions", ()))
            found[name] = range(start, start + number)
            start += number
        return {name: numbers for name, numbers in found.items() if numbers}

    def chunks(self) -> list[tuple[tuple[int, int], list[str], Path]]:
        """The files of activations: the shape, the pictures, the path. Those kept aside are squares."""
        by_shape: list[list[str]] = [[] for _ in SHAPES]
        aside = [name for name in self.rows if self.is_aside(name)]
        for name in self.rows:
            by_shape[_shape(name)].append(name)
        groups = [(SHAPES[0][:2], "aside", aside)]
        groups += [(shape[:2], str(k), by_shape[k][: shape[3]]) for k, shape in enumerate(SHAPES)]
        return [
            (shape, names[start : start + CHUNK], self.out / "activations" / f"{group}-{start:06d}.npz")
            for shape, group, names in groups
            for start in range(0, len(names), CHUNK)
        ]


def _shape(name: str) -> int:
    """Which shape a picture is seen in."""
    drawn = (digits(f"0/{name}") >> 1) % 100
    return next(k for k in range(len(SHAPES)) if drawn < sum(shape[2] for shape in SHAPES[: k + 1]))


class Halves(nn.Module):
    """The activations of the last block that stays as it is, and ImageNet's logits."""

    def __init__(self) -> None:
        super().__init__()
        self.network = load("efficientnet-lite0").module

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Both of images [N, 3, H, W]."""
        network: Any = self.network
        below = network.blocks[:FIRST](network.stem(images))
        return below, network.classifier(network.pool(network.head(network.blocks[FIRST:](below))).flatten(1))


def activate(chunk: tuple[tuple[int, int], list[str], Path], pictures: Path) -> None:
    """Write the activations of a chunk."""
    import onnxruntime

    shape, names, path = chunk
    graph = path.with_name(f"{shape[0]}x{shape[1]}.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(graph), options)
    aside, found = path.name.startswith("aside"), []
    for start in range(0, len(names), TOGETHER):
        images = np.zeros((TOGETHER, 3, *shape), np.float32)
        for k, name in enumerate(names[start : start + TOGETHER]):
            picture = Image.open(pictures / name).convert("RGB").resize(shape[::-1], Image.Resampling.BICUBIC)
            values = (np.asarray(picture, np.float32) - 127) / 128
            images[k] = (values[:, ::-1] if digits(f"0/{name}") & 1 and not aside else values).transpose(2, 0, 1)
        found.append(session.run(None, {session.get_inputs()[0].name: images}))
    below, logits = (np.concatenate(part)[: len(names)].astype(np.float16) for part in zip(*found, strict=True))
    atomic_write(path, lambda file: np.savez(file, features=below, logits=logits, names=np.array(names)))


def activations(corpus: Corpus, workers: int) -> None:
    """Write all activations that are not there."""
    missing = [chunk for chunk in corpus.chunks() if not chunk[2].exists()]
    for shape in {chunk[0] for chunk in missing}:
        graph = corpus.out / "activations" / f"{shape[0]}x{shape[1]}.onnx"
        graph.parent.mkdir(parents=True, exist_ok=True)
        torch.onnx.export(Halves().eval(), (torch.zeros(TOGETHER, 3, *shape),), str(graph), dynamo=True)
    with ProcessPoolExecutor(workers) as pool:
        work = pool.map(activate, missing, [corpus.pictures] * len(missing))
        list(progress(work, len(missing), "activations"))


class Folded(nn.Module):
    """A convolution with its norm: ``weight * factor`` and ``bias - mean * factor``, factor = scale / deviation."""

    def __init__(self, unit: Any) -> None:
        super().__init__()
        norm, self.conv, self.is_linear = unit.norm, unit.conv, not hasattr(unit, "act")
        self.factor = (norm.weight / torch.sqrt(norm.running_var + norm.eps)).detach()
        self.shift = (norm.running_mean * self.factor).detach()
        self.conv.weight = nn.Parameter((self.conv.weight * self.factor[:, None, None, None]).detach())
        self.conv.bias = nn.Parameter((norm.bias - self.shift).detach())

    def forward(self, features: Tensor) -> Tensor:
        """As before."""
        found: Tensor = self.conv(features)
        return found if self.is_linear else functional.relu6(found)

    def unfolded(self, name: str) -> dict[str, Tensor]:
        """The weight and the bias of the norm, for the published scale and statistics."""
        weight = self.conv.weight / self.factor[:, None, None, None]
        return {f"{name}.conv.weight": weight, f"{name}.norm.bias": self.conv.bias + self.shift}


class Upper(nn.Module):
    """What is trained: the upper blocks and the output layers."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__()
        network: Any = load("efficientnet-lite0").module
        self.blocks, self.head, self.imagenet = network.blocks[FIRST:], Folded(network.head), network.classifier
        for block in self.blocks:
            for part in ("expand", "depthwise", "project"):
                setattr(block, part, Folded(getattr(block, part)))
        self.imagenet.requires_grad_(requires_grad=False)
        size = network.classifier.in_features
        self.everyday = nn.Linear(size, len(corpus.objects))
        self.words = nn.Linear(size, len(corpus.dictionary))
        self.embed = nn.Linear(size, corpus.texts["objects"].shape[1], bias=False)
        for layer in (self.everyday, self.words):
            nn.init.normal_(layer.weight, std=0.005)
            nn.init.constant_(layer.bias, -6)  # most are not there
        self.scale, self.bias = nn.Parameter(torch.tensor(2.5)), nn.Parameter(torch.tensor(-8.0))  # of an embedding
        self.temperature = nn.Parameter(torch.tensor(3.0))  # of captions against others

    def features(self, below: Tensor) -> Tensor:
        """The pooled features [N, 1280]."""
        pooled: Tensor = self.head(self.blocks(below)).mean((2, 3))
        return pooled

    def near(self, embeddings: Tensor, rows: Tensor) -> Tensor:
        """The logits of rows."""
        return embeddings @ rows.T * self.scale.exp() + self.bias


def loss_of(upper: Upper, corpus: Corpus, names: Sequence[str], features: Tensor) -> Tensor:
    """The loss of the output layers on pooled features: summed over outputs, averaged over pictures."""
    dropped = functional.dropout(features, 0.2)
    shown, known = (torch.from_numpy(np.stack(part)) for part in zip(*map(corpus.truth, names), strict=True))
    embeddings = functional.normalize(upper.embed(dropped), dim=1)

    def entropy(logits: Tensor, truth: Tensor, weight: Tensor | None = None) -> Tensor:
        return functional.binary_cross_entropy_with_logits(logits, truth, weight, reduction="sum") / len(logits)

    loss = entropy(upper.everyday(dropped), shown, known)
    loss = loss + 0.5 * entropy(upper.near(embeddings, corpus.texts["objects"]), shown, known)
    told = [k for k, name in enumerate(names) if name in corpus.captions_of]
    if not told:
        return loss
    words = torch.zeros(len(told), len(corpus.dictionary))
    for row, k in zip(words, told, strict=True):
        row[corpus.words_of.get(names[k], [])] = 1
    captions, some = corpus.texts["captions"], embeddings[told]
    own = [random.choice(corpus.captions_of[names[k]]) for k in told]  # noqa: S311 - no secret
    others = torch.randint(len(captions), (OTHERS,))
    likeness = some @ captions[torch.cat([torch.tensor(own), others])].T * upper.temperature.exp()
    right = torch.arange(len(told))
    apart = functional.cross_entropy(likeness, right) + functional.cross_entropy(likeness[:, : len(told)].T, right)
    written = 0.15 * entropy(upper.words(dropped[told]), words)
    written = written + 0.05 * entropy(upper.near(some, corpus.texts["words"]), words) + 0.35 * apart
    return loss + written * len(told) / (0.3 * len(names))


def divergence(upper: Upper, features: Tensor, published: Tensor) -> Tensor:
    """How far ImageNet's answers are from those of the published network."""
    answers = upper.imagenet(features).log_softmax(1)
    return functional.kl_div(answers, published.softmax(1), reduction="batchmean")


def batches(path: Path, corpus: Corpus) -> Iterator[tuple[list[str], Tensor, Tensor]]:
    """The names, activations and ImageNet's logits of pictures of one chunk, in random order."""
    with np.load(path) as stored:
        names, below, logits = [str(name) for name in stored["names"]], stored["features"], stored["logits"]
    order = [k for k, name in enumerate(names) if not corpus.is_aside(name)]
    random.shuffle(order)
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        if len(some) > 8:
            yield [names[k] for k in some], _nhwc(below[some]), torch.from_numpy(logits[some].astype(np.float32))


def _nhwc(features: np.ndarray) -> Tensor:
    return torch.from_numpy(features.astype(np.float32)).contiguous(memory_format=torch.channels_last)


def train(corpus: Corpus, path: Path) -> dict[str, Tensor]:
    """The moving average of the weights after one epoch, kept in a file; a stopped run is resumed."""
    if path.exists():
        return torch.load(path)
    random.seed(0)
    torch.manual_seed(0)
    upper = Upper(corpus).train()
    paths = _paths(corpus)
    random.shuffle(paths)
    named = {name: each for name, each in upper.named_parameters() if each.requires_grad}
    groups: dict[str, list[nn.Parameter]] = {"trunk": [], "heads": []}
    for name, parameter in named.items():
        groups["trunk" if name.startswith(("blocks", "head")) else "heads"].append(parameter)
    optimiser = torch.optim.AdamW(
        [{"params": groups[name], "lr": rate} for name, rate in RATES.items()], betas=(0.9, 0.99), weight_decay=0.02
    )
    total = len(paths)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min(1, step / WARM_UP) * (0.5 + 0.5 * np.cos(np.pi * min(1, step * BATCH / CHUNK / total))),
    )
    average, begun, partial = (
        {name: each.detach().clone() for name, each in named.items()},
        0,
        path.with_suffix(".part"),
    )
    if partial.exists():
        kept = torch.load(partial, weights_only=True)
        upper.load_state_dict(kept["network"])
        optimiser.load_state_dict(kept["optimiser"])
        rate.load_state_dict(kept["rate"])
        average, begun = kept["average"], kept["begun"]
    for number, chunk in enumerate(progress(paths[begun:], total - begun, "training"), begun):
        random.seed(number)
        torch.manual_seed(number)
        for names, below, published in batches(chunk, corpus):
            optimiser.zero_grad()
            features = upper.features(below)
            loss = loss_of(upper, corpus, names, features) + KEEP * divergence(upper, features, published)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(groups["trunk"], 5.0)
            optimiser.step()
            rate.step()
            decay = min(AVERAGE, rate.last_epoch / (rate.last_epoch + 10))
            with torch.no_grad():
                torch._foreach_lerp_(list(average.values()), list(named.values()), 1 - decay)
        if number % 20 == 19:
            states = {"network": upper.state_dict(), "optimiser": optimiser.state_dict(), "rate": rate.state_dict()}
            torch.save(states | {"average": average, "begun": number + 1}, partial)
    torch.save(average, path)
    return average


def blend(upper: Upper, corpus: Corpus, trained: Mapping[str, Tensor], share: float) -> None:
    """Weights between the published and the trained ones, and the output layers trained once more on these features."""
    published = {name: each.detach().clone() for name, each in upper.named_parameters()}
    upper.load_state_dict(trained, strict=False)
    with torch.no_grad():
        for name, each in upper.named_parameters():
            if name.startswith(("blocks", "head")):
                each.lerp_(published[name], 1 - share)
    known: list[tuple[list[str], Tensor]] = []
    paths = _paths(corpus)[::REFIT]
    with torch.inference_mode():
        for path in progress(paths, len(paths), "features"):
            known += [(names, upper.features(below)) for names, below, _ in batches(path, corpus)]
    layers = [each for name, each in upper.named_parameters() if not name.startswith(("blocks", "head", "imagenet"))]
    optimiser = torch.optim.AdamW(layers, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.02)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS * len(known))
    for _ in range(EPOCHS):
        random.shuffle(known)
        for names, features in progress(known, len(known), "output layers"):
            optimiser.zero_grad()
            loss_of(upper, corpus, names, features.clone()).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            rate.step()


def _paths(corpus: Corpus) -> list[Path]:
    """The files of activations that are learnt from."""
    return sorted(chunk[2] for chunk in corpus.chunks() if not chunk[2].name.startswith("aside"))


def write(upper: Upper, corpus: Corpus) -> None:
    """The files of the package."""
    tuned = upper.head.unfolded("head")
    for number, block in enumerate(upper.blocks, FIRST):
        for part in ("expand", "depthwise", "project"):
            tuned |= getattr(block, part).unfolded(f"blocks.{number}.{part}")
    rows = upper.words.weight.detach()
    scale = rows.abs().amax(1, keepdim=True) / 127
    files = {
        TUNED: tuned,
        "everyday": upper.everyday.state_dict(),
        OPEN: {"weight": upper.embed.weight, "scale": upper.scale.exp()[None], "bias": upper.bias[None]},
        "words": {"weight": (rows / scale).round().to(torch.int8), f"weight{SCALE}": scale, "bias": upper.words.bias},
    }
    folder = Path(str(HEADS))
    for name, tensors in files.items():
        stored = {
            key: (each.detach() if each.dtype == torch.int8 else each.detach().half()).contiguous()
            for key, each in tensors.items()
        }
        content = save(stored)
        atomic_write(folder / f"{name}.safetensors", lambda file, content=content: file.write(content))
        print(f"{name}.safetensors: {len(content)} bytes")
    save_text("\n".join(corpus.dictionary) + "\n", folder / "words.txt")


def measure(upper: Upper, corpus: Corpus) -> None:
    """Mean average precision, calibration, and the retrieval of pictures by captions, on the pictures kept aside."""
    upper.eval()
    scores, truths, embeddings, names = [], [], [], []
    with torch.inference_mode():
        for path in sorted(corpus.out.glob("activations/aside-*.npz")):
            with np.load(path) as stored:
                features = upper.features(_nhwc(stored["features"]))
                names += [str(name) for name in stored["names"]]
            scores.append(upper.everyday(features).sigmoid().numpy())
            embeddings.append(functional.normalize(upper.embed(features), dim=1))
    truths, found = np.stack([corpus.truth(name)[0] for name in names]), np.concatenate(scores)
    each = [average_precision(found[:, k], truths[:, k] > 0) for k in range(len(corpus.objects))]
    known = [value for value in each if value is not None]
    print(f"{len(names)} pictures, mean average precision of {len(known)} objects: {np.mean(known):.4f}")
    print(
        f"calibration error: {calibration(found, truths):.4f}, of probabilities above 0.1: "
        f"{calibration(found[found > 0.1], truths[found > 0.1]):.4f}"
    )
    told = [k for k, name in enumerate(names) if name in corpus.captions_of][:500]
    rows = corpus.texts["captions"][[corpus.captions_of[names[k]][0] for k in told]]
    likeness = rows @ torch.cat(embeddings)[told].T
    first = (likeness > likeness.diagonal()[:, None]).sum(1) == 0
    print(f"the picture of a caption is first among {len(told)}: {float(first.float().mean()):.3f}")


def calibration(scores: np.ndarray, truths: np.ndarray, bins: int = 15) -> float:
    """The mean distance of the probability of a bin from the share of its outputs that are true."""
    scores, truths = scores.ravel(), truths.ravel()
    place = np.minimum((scores * bins).astype(int), bins - 1)
    number = np.bincount(place, minlength=bins)
    sums = np.bincount(place, scores, bins) - np.bincount(place, truths, bins)
    return float(np.abs(sums).sum() / number.sum())


def main() -> None:
    """Do all steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("words", type=Path)
    parser.add_argument("--out", type=Path, default=Path("excite-out/tuned"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(options.pictures, options.labels, options.words, options.out)
    print(f"{len(corpus.texts['captions'])} captions, {len(corpus.dictionary)} words")
    activations(corpus, options.workers)
    upper = Upper(corpus)
    blend(upper, corpus, train(corpus, options.out / "trained.pt"), SHARE)
    write(upper, corpus)
    measure(upper, corpus)


if __name__ == "__main__":
    main()
