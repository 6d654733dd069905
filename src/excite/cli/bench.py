"""``excite bench``: the paper's experiments on any classifier and data, and the cost of a map in time and memory."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excite import DEFAULT_MODEL
from excite.cli import options
from excite.cli.console import print_columns, progress, say, say_json, tell_failures
from excite.cli.options import MODEL_HELP, AnswerOptions, ClassifierOptions, Device, ImageOptions, JobOptions, grouped
from excite.experiments import GROUNDING_METHODS, HELD_OUT, LOCALIZATION_METHODS, POINTING_METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.experiments.base import Comparison
    from excite.experiments.grounding.run import SystemResults
    from excite.experiments.report.page import Report
    from excite.jobs import Entry, Executor

app = options.group("Measure the engine itself, and how well its maps point and box.")
POINTING_EXAMPLES = """\b
Examples:
  excite bench pointing --data VOCdevkit/VOC2007 --split val --model head --limit 200
  excite bench pointing --data coco --model head --methods all --workers 2 --json
  excite bench pointing --data VOCdevkit --model head --model resnet-head --methods c-mwp,mwp,grad,center
  excite bench pointing --data VOCdevkit --model head --layer blocks.4 --layer blocks.10 --layer blocks.14
"""
LOCALIZATION_EXAMPLES = """\b
Examples:
  excite bench localization --data imagenet --split val --limit 1000 --workers 2
  excite bench localization --data imagenet --methods mwp,c-mwp,guided --json
  excite bench localization --data imagenet --methods mwp --layer blocks.4 --layer blocks.10 --layer blocks.14
  excite bench localization --data VOCdevkit --model head --methods all --own-shape
"""
GROUNDING_EXAMPLES = """\b
Examples:
  excite bench grounding --data refcoco --workers 2
  excite bench grounding --data flickr30k --methods excite,c-mwp,mwp,lrp --trust 0 --no-hints --gamma paper
  excite bench grounding --data coco --model everyday --methods c-mwp,grad --limit 200 --json
  excite bench grounding --data refcoco --gamma 0.5 --proposals edge-boxes
  excite bench grounding --data flickr30k --proposals MCG --trust 0 --no-hints --results CCA=cca.jsonl
"""
SPEED_EXAMPLES = """\b
Examples:
  excite bench speed --quick                           the headline, in about one minute
  excite bench speed                                   everything, in about 20 minutes; goes on where it was stopped
  excite bench speed --model resnet50.safetensors --batches 1 --layers default --json
  excite bench speed --model torchvision:vgg16 --seconds 60 --threads 1
  excite bench speed --end-to-end holiday/             from files to overlays, beside plain classifying
"""
SEARCH, PAPER = "search", "paper"
LAYERS = ("all", "default")


@app.command("pointing", epilog=POINTING_EXAMPLES)
@grouped
def pointing(
    *,
    context: typer.Context,
    data: options.Data,
    split: options.Split = None,
    model: options.Models = None,
    classifiers: ClassifierOptions,
    methods: options.Methods = POINTING_METHODS,
    layer: options.Layers = None,
    difficult: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The Difficult subset as a list of images and categories; by the paper's rule if none."
        ),
    ] = None,
    protocol: Annotated[str, typer.Option(help="Whose conventions: authors or torchray.")] = "authors",
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="How many pixels beside an object a point may lie; 15 for VOC and COCO if none."),
    ] = None,
    images: ImageOptions,
    jobs: JobOptions,
    out: options.Out = Path("excite-out/pointing"),
    answer: AnswerOptions,
) -> None:
    """Does the maximum of each map lie on an object of the queried category?

    Accuracy is computed for each category and averaged over categories, for all pairs of an image and a category and
    for the difficult ones. An interrupted run resumes.
    """
    from excite.datasets import open_dataset
    from excite.datasets.difficult import read_difficult_list
    from excite.experiments.pointing.report import PointingReport
    from excite.experiments.pointing.run import PointingGame, find_protocol

    executor, names = _checked(jobs, answer, methods)
    rules = find_protocol(protocol, tolerance)
    dataset = open_dataset(data, split)
    subset = None if difficult is None else read_difficult_list(difficult, dataset)
    settings = {"layers": layer, "difficult": subset, "protocol": rules, **vars(images)}
    games = (PointingGame(one, dataset, names, **settings) for one in classifiers.load(model))
    _tell(PointingReport([game.run(_records(game, out, executor)) for game in games]), context, out, answer)


@app.command("localization", epilog=LOCALIZATION_EXAMPLES)
@grouped
def localization(
    *,
    context: typer.Context,
    data: options.Data,
    split: options.Split = None,
    model: options.Models = None,
    classifiers: ClassifierOptions,
    methods: options.Methods = LOCALIZATION_METHODS,
    layer: options.Layers = None,
    own_shape: Annotated[
        bool, typer.Option("--own-shape", help="Do not squash images to a square before they are looked at.")
    ] = False,
    held_out: Annotated[
        float, typer.Option(metavar="SHARE", help="Choose thresholds on this share of the images; 0.2 is a fifth.")
    ] = HELD_OUT,
    seed: Annotated[int, typer.Option(help="Which images are held out to choose thresholds on.")] = 0,
    images: ImageOptions,
    jobs: JobOptions,
    out: options.Out = Path("excite-out/localization"),
    answer: AnswerOptions,
) -> None:
    """Does the box around the strong part of each map fit the queried object?

    A box fits if its IoU is at least a half. Thresholds are chosen for each method on held-out images; errors are those
    on the others. An interrupted run resumes.
    """
    from excite.datasets import open_dataset
    from excite.experiments.base import checked_share
    from excite.experiments.localization.report import LocalizationReport
    from excite.experiments.localization.run import Localization

    executor, names = _checked(jobs, answer, methods)
    held = {"held_out": checked_share(held_out), "seed": seed}
    dataset = open_dataset(data, split)
    settings = {"layers": layer, "own_shape": own_shape, **held, **vars(images)}
    boxings = (Localization(one, dataset, names, **settings) for one in classifiers.load(model))
    _tell(LocalizationReport([boxing.run(_records(boxing, out, executor)) for boxing in boxings]), context, out, answer)


@app.command("grounding", epilog=GROUNDING_EXAMPLES)
@grouped
def grounding(
    *,
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Option(help="The folder of described images: Flickr30k Entities, COCO captions, RefCOCO, or your own."),
    ],
    split: options.Split = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help=f"{MODEL_HELP} May be given several times. words if none.")
    ] = None,
    classifiers: ClassifierOptions,
    methods: options.Methods = GROUNDING_METHODS,
    layer: Annotated[
        str | None, typer.Option(help="Read all methods here, where they can be; each where it should be if none.")
    ] = None,
    proposals: options.ProposalsFrom = "hierarchy",
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep proposals here; in the folder for results if none.")
    ] = None,
    gamma: Annotated[
        str,
        typer.Option(
            metavar="search|paper|NUMBER",
            help="How much a large region must hold, 0 to 1; search chooses the best of 0, 0.05 ... 1 for each method, "
            "paper that of 0, 0.25 ... 1.",
        ),
    ] = SEARCH,
    held_out: Annotated[
        float, typer.Option(metavar="SHARE", help="Search gamma on this share of the images; 0.2 is a fifth.")
    ] = HELD_OUT,
    seed: Annotated[int, typer.Option(help="Which images are held out to search gamma on.")] = 0,
    truth: Annotated[
        str, typer.Option(metavar="union|any", help="What to match: the box around all that is meant, or any of it.")
    ] = "union",
    trust: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="How much the proposals' own order counts; 0 as in the paper, ours if none."),
    ] = None,
    side: Annotated[
        int | None, typer.Option(min=1, help="The shorter side of images as the classifier sees them; 300, or --size.")
    ] = None,
    hints: options.Hints = True,
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Also count the ranked boxes of another system: JSON with image, phrase, boxes and scores.",
        ),
    ] = None,
    images: ImageOptions,
    jobs: JobOptions,
    out: options.Out = Path("excite-out/grounding"),
    answer: AnswerOptions,
) -> None:
    """Which of many proposed regions does a phrase refer to?

    The maps of its words are averaged, and regions are ranked by their share of the map. A box is right if its IoU
    with the truth is at least a half; R@N is the share of phrases with a right box among the first N. An interrupted
    run resumes.
    """
    from excite.datasets.phrase_formats import open_phrases
    from excite.experiments.base import checked_share
    from excite.experiments.grounding.measure import checked_truth
    from excite.experiments.grounding.report import GroundingReport
    from excite.experiments.grounding.run import Grounding
    from excite.grounding.phrase_maps import SIDE
    from excite.grounding.scoring import TRUST

    executor, names = _checked(jobs, answer, methods)
    settings = {
        "layer": layer,
        "proposals": proposals,
        "cache": cache or out / "proposals",
        "gamma": _gamma(gamma),
        "held_out": checked_share(held_out),
        "seed": seed,
        "truth": checked_truth(truth),
        "trust": TRUST if trust is None else trust,
        "side": side or classifiers.size or SIDE,
        "hints": hints,
        **vars(images),
    }
    others = _others(results or (), names)
    dataset = open_phrases(data, split)
    runs = []
    for classifier in classifiers.load(model or ["words"]):
        asking = Grounding(classifier, dataset, names, **settings)
        trial = progress(asking.choosing(out, executor), len(asking.held), "pictures to choose gamma on")
        chosen = asking.choose(list(trial))
        asked = progress(asking.records(out, chosen, executor), len(asking.reported))
        runs.append(asking.run(chosen, list(asked), others))
    _tell(GroundingReport(runs), context, out, answer)


@app.command("speed", epilog=SPEED_EXAMPLES)
def speed(
    model: Annotated[list[str] | None, typer.Option(help=f"{MODEL_HELP} May be given several times.")] = None,
    batches: Annotated[str | None, typer.Option(help="How many images at once; 1,8,32 if none.")] = None,
    concepts: Annotated[str | None, typer.Option(help="How many concepts an image; 1,5,20,80 if none.")] = None,
    layers: Annotated[
        str | None, typer.Option(help="`all`: the cost at each layer, too (the paper's figure); or `default`.")
    ] = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", hidden=True)] = False,
    memory: Annotated[bool | None, typer.Option("--memory/--no-memory", help="Peak memory, too.")] = None,
    compiled: Annotated[
        bool | None,
        typer.Option("--compiled/--no-compiled", help="Maps by onnxruntime (excite.compile), too; not if not asked."),
    ] = None,
    end_to_end: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Instead: these photographs from files to overlays and JSON, as `excite attend` does it, beside plain "
            "torch that decodes and classifies them; 1,3 concepts if none.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The headline only: all of the above at its least.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads; torch's own choice if none.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="How long a group of methods may take turns; 20 if none.")
    ] = None,
    device: Device = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what was measured before.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for results; a run that was stopped goes on there.")] = Path(
        "excite-out/speed"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line for each row.")] = False,
) -> None:
    """How long does a map take, and how much memory, beside the plain forward pass and the gradient?

    Everything that is compared takes turns in one process. Each time is divided by the plain forward pass of the same
    round; the tables give the median of the rounds with its 95 % interval.
    """
    import torch

    from excite.errors import DataError
    from excite.experiments.report.figures import check_plots
    from excite.experiments.speed import report, run

    if end_to_end is not None:
        _whole_way(end_to_end, model or [DEFAULT_MODEL], concepts, device, out, seconds, quick=quick, as_json=as_json)
        return
    from excite.jobs import ResultStore
    from excite.models import find_card
    from excite.models.loading import find_device

    check_plots()
    if peers:
        raise DataError("other packages are timed by a tool of the repository: run `python dev/speed_peers.py` there")
    if layers not in {None, *LAYERS}:
        raise DataError(f"--layers {layers}: give one of {', '.join(LAYERS)}")
    asked = {
        "models": None if model is None else tuple(model),
        "batches": None if batches is None else run.numbers(batches, "--batches"),
        "concepts": None if concepts is None else run.numbers(concepts, "--concepts"),
        "all_layers": None if layers is None else layers == "all",
        "memory": memory,
        "compiled": compiled,
    }
    plan = run.Plan(
        **{**(run.QUICK if quick else {}), **{name: value for name, value in asked.items() if value is not None}}
    )
    for name in plan.models:
        find_card(name)  # a wrong name is an error before anything is measured
    budget = (run.QUICK_SECONDS if quick else run.SECONDS) if seconds is None else seconds
    bench = run.SpeedBench(budget, threads or torch.get_num_threads(), str(find_device(device)))
    tasks = list(plan.tasks())
    entries = bench.entries(tasks, ResultStore(out / "speed.jsonl", run.REQUIRED), fresh=fresh)
    rows = report.merged(row for entry in progress(entries, len(tasks), "groups") for row in entry["rows"])
    written = report.write_tables(rows, bench.facts, out)
    figure = report.speed_figure(rows, out / "speed.png")
    if as_json:
        for row in rows:
            say_json(row)
        return
    top = report.headline(rows)
    if top:
        print_columns(top)
        say()
    print_columns([report.columns(row) for row in rows])
    files = [*written, *([figure] if figure else [])]
    for line in ("", *report.about(rows, bench.facts), f"written: {', '.join(map(str, files))}"):
        say(line)


def _whole_way(
    folder: Path,
    models: Sequence[str],
    concepts: str | None,
    device: str,
    out: Path,
    seconds: float | None,
    *,
    quick: bool,
    as_json: bool,
) -> None:
    """`excite bench speed --end-to-end`."""
    from excite.experiments.speed import end_to_end, run
    from excite.images import find_images
    from excite.io.files import save_json
    from excite.models import Choice

    numbers = end_to_end.NUMBERS if concepts is None else run.numbers(concepts, "--concepts")
    ways = [(number, least) for number in numbers for least in end_to_end.AT_LEAST]
    plan = [(number, least, workers) for number, least in ways for workers in end_to_end.WORKERS]
    photos, rows = find_images(str(folder)), []
    out.mkdir(parents=True, exist_ok=True)
    for model in models:
        choice = Choice(model, device=device)
        classifier = choice.load()
        for number, least, workers in plan[:1] if quick else progress(plan, len(plan), "measurements"):
            way = end_to_end.EndToEnd(choice, classifier, photos, number, workers, least)
            rows.append(way.row(out, seconds or 0.0))
    written = save_json(rows, out / "end-to-end.json")
    if as_json:
        for row in rows:
            say_json(row)
        return
    print_columns([end_to_end.columns(row) for row in rows])
    say(f"written: {written}")


options.gone(
    app, "conservation", "bench conservation is a tool of the repository now: `python dev/conservation` in a checkout"
)


def _checked(jobs: JobOptions, answer: AnswerOptions, methods: str) -> tuple[Executor, list[str]]:
    """The executor and the methods, before anything heavy is loaded."""
    from excite.experiments.base import chosen_methods
    from excite.experiments.report.figures import check_plots

    executor = jobs.executor()
    if answer.with_page:
        check_plots()
    return executor, chosen_methods(methods)


def _records(comparison: Comparison, out: Path, executor: Executor) -> list[Entry]:
    return list(progress(comparison.records(out, executor), len(comparison.tasks)))


def _tell(report: Report[Any], context: typer.Context, out: Path, answer: AnswerOptions) -> None:
    """Write the tables and the page, print the answer, and name what could not be read."""
    written = report.write_tables(out)
    if answer.with_page:
        written.append(report.write_page(out, shlex.join(["excite", *context.obj])))
    if answer.as_json:
        say_json(report.printed())
    else:
        for k, (title, lines) in enumerate(report.tables()):
            for line in [""] * bool(k) + [f"{title}:"] * bool(title):
                say(line)
            print_columns(lines)
        for line in [*report.spoken(), f"written: {', '.join(map(str, written))}"]:
            say(line)
    tell_failures(report.failures(), report.about["pictures"])


def _gamma(text: str) -> float | Sequence[float]:
    """The given gamma, or those to choose from."""
    from excite.experiments.grounding.measure import GAMMAS, PAPERS_GAMMAS

    if text in {SEARCH, PAPER}:
        return GAMMAS if text == SEARCH else PAPERS_GAMMAS
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise typer.BadParameter(f"--gamma is {SEARCH}, {PAPER} or a number from 0 to 1, not {text!r}")
    return number


def _others(given: Sequence[str], methods: Sequence[str]) -> list[SystemResults]:
    """The results of other systems, under different names."""
    from excite.experiments.grounding.measure import OWN
    from excite.experiments.grounding.run import read_results

    found: dict[str, SystemResults] = {}
    for one in given:
        name, _, path = one.partition("=")
        if not name or not path or not name.isprintable():
            raise typer.BadParameter(f"--results is NAME=FILE, as in CCA=cca.jsonl, not {one!r}")
        if name in {*methods, OWN, *found}:
            raise typer.BadParameter(f"--results {one}: there is a row {name!r} already; call it otherwise")
        found[name] = read_results(name, Path(path))
    return list(found.values())
