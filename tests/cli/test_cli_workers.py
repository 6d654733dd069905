"""Who does the work: the same options for all long commands, and what is wrong with them in one line."""

import pytest

from excite.errors import ExciteError
from excite.jobs import Executor
from excite.jobs.cluster import connected

LONG = {
    "attend": ("attend", "cat.png"),
    "boxes": ("boxes", "photos"),
    "layers": ("layers", "everyday", "--data", "voc"),
    "finetune": ("finetune", "--data", "voc", "--out", "new"),
    "pointing": ("bench", "pointing", "--data", "voc"),
    "localization": ("bench", "localization", "--data", "voc"),
}


WRONG = {
    ("--engine", "spark"): "there is no engine 'spark': choose local or ray",
    ("--address", "auto"): "--address is that of a Ray cluster: give --engine ray too",
    ("--workers", "0"): "workers",
    ("--engine", "ray"): "pip install 'excite[ray]'",  # where it is not installed
}


@pytest.mark.parametrize("command", LONG)
def test_every_long_command_says_what_is_wrong(excite, here, command, monkeypatch):
    monkeypatch.setattr("excite.jobs.executor.find_spec", lambda _name: None)
    for options, said in WRONG.items():
        assert said in excite(*LONG[command], *options).complaint


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "nobody answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:1", "nobody answers at ray://127.0.0.1:1"),
        ("no host", "'no host' is no address of a Ray cluster: give HOST:PORT"),
        ("host:port", "'host:port' is no address"),
    ],
)
def test_addresses_where_nobody_is(address, said):
    pytest.importorskip("ray")
    with pytest.raises(ExciteError, match=said) as error, connected(Executor("ray", address=address)):
        pytest.fail("there is nobody")
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore::excite.errors.LostSignalWarning")  # not every image shows red
def test_several_workers_attend(excite, here, model, voc):
    one = excite("attend", "voc/JPEGImages", "red", "--json", "--out", "out")
    two = excite("attend", "voc/JPEGImages", "red", "--json", "--out", "two", "--workers", "2")
    assert (two.code, two.err) == (0, "")
    assert two.out == one.out.replace("out/", "two/")
    assert len(two.answers) == 24
