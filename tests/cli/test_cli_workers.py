"""Who does the work: the same options for all long commands, and what is wrong with them in one line."""

import pytest

from excite.errors import ExciteError
from excite.jobs import Executor
from excite.jobs.cluster import connected


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
