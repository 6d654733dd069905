"""``excite train tags`` and ``excite finetune``: train classifiers on the user's own data."""

import shlex
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from excite.cli import options as shared
from excite.cli.console import note, progress, say, say_json, tell_failures

app = shared.group("Train classifiers on corpora of any size.")

TAGS_EXAMPLES = """\b
Examples:
  excite train tags kept.parquet --pictures photos --out mine                  the paper's way, on a cleaned corpus
  excite train tags kept.parquet --pictures photos --out mine --views 4 --epochs 40    quick, for small corpora
  excite train tags raw.parquet --pictures 'shards/{000..099}.tar' --out mine --min-count 1000 --workers 16
  torchrun --nproc-per-node 4 -m excite train tags kept.parquet --pictures photos --out mine --layers all
  excite attend photo.jpg dog --model mine                                     any command takes the folder
"""
FINETUNE_EXAMPLES = """\b
Examples:
  excite finetune --data VOCdevkit/VOC2007 --out voc                 EfficientNet-Lite0 learns VOC's 20 categories
  excite finetune --data photos --out pets --held-out 0.2            photos/dog/*.jpg, photos/cat/*.jpg
  excite finetune --data VOCdevkit/VOC2007 --out voc --model vgg16 --augment      the paper's own way
  excite finetune --data coco --split train2017 --out pets --categories dog,cat --held-out 0.1
  excite attend photo.jpg dog --model voc                            any command takes the folder
"""
PICTURES = "Where the images are: a folder, or shards such as pics-{000..011}.tar; the corpus' folder if none."
OutFolder = Annotated[
    Path, typer.Option(help="The folder for the new classifier; a run that was stopped goes on there.")
]
HeldOut = Annotated[
    float, typer.Option(min=0, max=0.9, metavar="SHARE", help="The share of held-out images, to measure on.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same classifier.")]


@app.command("tags", epilog=TAGS_EXAMPLES)
def tags_command(
    context: typer.Context,
    corpus: shared.RawCorpusArgument,
    out: OutFolder,
    pictures: Annotated[str | None, typer.Option(metavar="WHERE", help=PICTURES)] = None,
    dictionary: Annotated[
        Path | None, typer.Option(help="The tags to learn, a CSV file; by default the one beside the corpus,")
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="or those seen at least so often in the corpus.")
    ] = None,
    model: shared.Model = "efficientnet-lite0",
    weights: shared.Weights = None,
    device: shared.Device = "auto",
    layers: Annotated[str, typer.Option(metavar="output|all", help="Train the last layer only, or all.")] = "output",
    first: Annotated[int, typer.Option(min=1, help="How many of an image's tags are learnt, as they are listed.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs, at most.")] = 3,
    batch: Annotated[int, typer.Option(min=1, help="Images per step, of all processes together.")] = 64,
    rate: Annotated[
        float, typer.Option(min=0, help="The learning rate, divided by 10 when the held-out loss plateaus.")
    ] = 0.01,
    momentum: Annotated[float, typer.Option(min=0, max=0.999, help="The weight of the previous step.")] = 0.9,
    held_out: HeldOut = 0.1,
    checks_per_epoch: Annotated[int, typer.Option(min=1, help="Evaluations of the loss per epoch.")] = 4,
    views: Annotated[
        int, typer.Option(min=0, help="Random views of each image, computed once; 0: a new one in each epoch.")
    ] = 0,
    workers: Annotated[int, typer.Option(min=0, metavar="N", help="How many processes decode images.")] = 1,
    save_every: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Time between two checkpoints.")] = 300,
    seed: Seed = 0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write the curves for TensorBoard too.")] = False,
    urls: Annotated[
        bool, typer.Option("--urls", help="Fetch images whose names are web addresses; the corpus says from whom.")
    ] = False,
    columns: shared.Columns = None,
    as_json: shared.AsJson = False,
) -> None:
    """Train a classifier for the tags of a corpus; the folder can be given to every command as --model.

    Multi-label cross-entropy over the dictionary, on the first five tags of each image, by stochastic gradient
    descent. Checkpoints let a run that was killed go on to the same result. Started by torchrun, several processes
    share the work. Images that cannot be read are counted and skipped.
    """
    from excite.tags.dictionary import dictionary_beside
    from excite.tags.images import open_images
    from excite.tags.text_files import open_corpus
    from excite.training.tags.loop import TrainingOptions, check_tensorboard
    from excite.training.tags.model import distributed
    from excite.training.tags.run import TagTraining

    started = time.monotonic()
    options = TrainingOptions(layers, first, epochs, batch, rate, momentum, held_out, checks_per_epoch, views, seed)
    if tensorboard:
        check_tensorboard()
    with distributed(device) as processes:
        opened = partial(open_corpus, corpus, shared.columns_of(columns, users_needed=False), out / "corpus")
        if processes.first:
            opened()  # a text file becomes Parquet there, once for all processes
        processes.wait()
        read, skipped = opened()
        if dictionary is None and min_count is None and (beside := dictionary_beside(corpus)).is_file():
            dictionary = beside
        images = open_images(pictures or corpus.parent, urls=urls)
        training = TagTraining(read, images, out, options, model, weights, dictionary, min_count, workers, save_every)
        training.tensorboard, training.processes = tensorboard, processes
        training.command = shlex.join(["excite", *(context.obj or [])])
        if processes.first:
            training.note, training.progress = note, progress
            for reason, count in skipped.items():
                note(f"rows of {corpus} that cannot be used, {reason.replace('_', ' ')}: {count}")
        answer = training.train()
    if processes.first:
        answer["seconds"] = round(time.monotonic() - started, 1)
        say_json(answer) if as_json else _print_tags(answer, out)
        for line in answer["lines"]:
            note(line)


def _print_tags(answer: dict[str, Any], out: Path) -> None:
    if answer["already"]:
        say(f"this training is finished already: {out} has its classifier")
    say(
        f"{answer['tags']} tags learnt from {answer['pictures']} images in {answer['epochs_seen']:g} epochs "
        f"({answer['seconds']:.0f} s); training loss {answer['loss']:.3f} an image"
    )
    for reason, count in answer["left_out"].items():
        say(f"rows left out, {reason}: {count}")
    if answer["unreadable"]:
        say(f"images that cannot be read: {answer['unreadable']}")
    if answer.get("map") is not None:
        say(
            f"mean average precision on {answer['measured']} held-out images: {answer['map']:.3f}, "
            f"{answer['ratio']:.1f} x that of predicting by frequency"
        )
        say(f"best: {', '.join(answer['best'])}")
        say(f"worst: {', '.join(answer['worst'])}")
    _print_files(answer)


def _print_files(answer: dict[str, Any]) -> None:
    say(f"written: {', '.join(answer['files'])}")
    folder = Path(answer["files"][0]).parent
    say(f"next: excite attend PHOTO --model {shlex.quote(str(folder))}", dim=True)


@shared.grouped
def finetune_command(
    *,
    data: Annotated[
        Path,
        typer.Option(help="Images to learn from: VOC, COCO, or a folder for each label."),
    ],
    out: OutFolder,
    split: Annotated[str | None, typer.Option(help="Which part of the data; train, or all of it, if none.")] = None,
    model: shared.Model = "efficientnet-lite0",
    weights: shared.Weights = None,
    device: shared.Device = "auto",
    labels: shared.LabelsFile = None,
    categories: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Learn only these categories, in this order.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images per step; by default as in the paper, 64 or, for vgg16, 32.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="The learning rate.")] = 0.01,
    views: Annotated[int, typer.Option(min=1, help="Random views of each image, computed once.")] = 4,
    augment: Annotated[
        bool, typer.Option("--augment", help="New random views in each epoch: the paper's procedure, and slow.")
    ] = False,
    held_out: HeldOut = 0,
    seed: Seed = 0,
    jobs: shared.JobOptions,
    as_json: shared.AsJson = False,
) -> None:
    """Train the output layer of a classifier for other categories; all other weights stay as they are.

    Multi-label cross-entropy by stochastic gradient descent, until the training loss plateaus. The folder can be given
    to every command as --model.
    """
    from excite.training.examples import read_examples
    from excite.training.finetune import FineTuning
    from excite.training.sgd import BATCH, BATCHES, SGDOptions
    from excite.vocabulary import Labels

    started = time.monotonic()
    executor = jobs.executor()
    chosen = examples = read_examples(data, split)
    if labels is not None and categories is not None:
        raise typer.BadParameter("--labels already says what to learn: leave --categories out")
    if labels is not None:
        chosen = examples.of(Labels.read(Path(labels)))
    if categories is not None:
        chosen = examples.of(Labels([category.strip() for category in categories.split(",")]))
    training, aside = chosen.split(held_out)
    sgd = SGDOptions(batch or BATCHES.get(model, BATCH), rate, seed=seed)
    tuning = FineTuning(model, training, out, weights, sgd, views, augment, executor, progress, device=device)
    answer = tuning.train()
    answer |= tuning.measure(aside) if held_out else {}
    answer["seconds"] = round(time.monotonic() - started, 1)
    say_json(answer) if as_json else _print_finetuned(answer)
    failures = [*examples.failures, *tuning.failures]
    tell_failures(failures, len(examples.pictures) + len(examples.failures))


def _print_finetuned(answer: dict[str, Any]) -> None:
    say(
        f"{len(answer['categories'])} categories learnt from {answer['pictures']} images in {answer['epochs']} "
        f"epochs ({answer['seconds']:.0f} s); training loss {answer['loss']:.3f} an image"
    )
    if answer["never_seen"]:
        say(f"in none of these images: {', '.join(answer['never_seen'])}")
    if answer.get("map") is not None:
        say(f"mean average precision on {answer['held_out']} held-out images: {answer['map']:.3f}")
    _print_files(answer)
