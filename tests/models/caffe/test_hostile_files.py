"""Files that are not what they should be, by accident or on purpose: a right answer or a clear refusal."""

import os
import time
import tracemalloc
from math import prod

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from writing import chunk, new_blob, new_layer, number, old_blob, old_layer, packed, varint

from excite.errors import ModelError
from excite.models.caffe import reading
from excite.models.caffe.definition import Network
from excite.models.caffe.reading import read_network, read_network_of_weights, read_weights

READERS = [read_network, read_weights, read_network_of_weights]
BINARY = [read_weights, read_network_of_weights]
NEW = chunk(1, "net") + b"".join(
    new_layer(
        name, "Convolution", ["data"], [name], blobs=[new_blob((1, 2), [1.0, 2.0])], rest=chunk(106, number(1, 1))
    )
    for name in ("a", "b")
)
OLD = b"".join(old_layer(name, 4, ["data"], [name], blobs=[old_blob((1, 1, 1, 2), [1.0, 2.0])]) for name in ("a", "b"))
TEXT = (
    b'name: "n" input: "d" layer { name: "a" type: "LRN" bottom: "d" top: "a" lrn_param { local_size: 5 alpha: 1e-4 } }'
)
FUZZ = settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])


def sound(reader, path):
    """What a reader makes of a file: None where it refuses, and nothing that contradicts itself otherwise."""
    try:
        read = reader(path)
    except ModelError as error:
        told = str(error)
        assert (str(path) in told, told.count("\n")) == (True, 0), told
        return None
    if isinstance(read, Network):
        assert read.layers
        assert all(isinstance(name, str) for name in read.inputs)
    else:
        assert all(tensor.numel() == prod(tensor.shape) > 0 for blobs in read.values() for tensor in blobs)
    return read


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file(reader, tmp_path):
    (tmp_path / "empty").touch()
    wrong = {tmp_path / "absent": "There is no file", "a\0b": "There is no file", tmp_path: "is a folder"}
    for path, message in {**wrong, os.devnull: "is a device", tmp_path / "empty": "is empty"}.items():
        with pytest.raises(ModelError, match=message):
            reader(path)


def test_the_one_for_the_other(saved):
    for reader in BINARY:
        with pytest.raises(ModelError, match=r"is text, as a \.prototxt is"):
            reader(saved(TEXT))
    for model in (NEW, OLD, b"name: 'a'\0"):
        with pytest.raises(ModelError, match=r"is binary .* as a \.caffemodel is"):
            read_network(saved(model))


def test_texts_that_are_none(saved):
    for text, message in ((b"name:\n\xff", "not UTF-8 at byte 6"), (b"#\n" * 2**21 + b"#", "larger than 4194304 bytes"),
                          (b" " * (2**20 + 1), "a line of more than 1048576 bytes")):  # fmt: skip
        with pytest.raises(ModelError, match=message):
            read_network(saved(text))
    assert read_network(saved(b"\xef\xbb\xbf" + TEXT)).name == "n"


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "0 numbers where its shape says a single number"),
        (new_blob((3,), [1.0, 2.0]), "blob 0 of 'a' has 2 numbers where its shape says 3"),
        (new_blob((-1, -2), [1.0, 2.0]), "says -1 x -2"),
        (new_blob((2**40,), [1.0]), "says 1099511627776"),
        (new_blob((2**32, 2**32, 1), []), "0 numbers"),
        (new_blob((0, 2**62, 2**62), []), "0 numbers"),
        (new_blob((2**63 - 1, 2), [1.0]), "1 numbers"),
        (new_blob((1,) * 33, [1.0]), "more than 32 axes"),
        (chunk(5, packed([1.0])) + chunk(7, number(1, 1)) * 33, "more than 32 axes"),
        (old_blob((2, 1, 1, 2), [1.0, 2.0]), "says 2 x 1 x 1 x 2"),
        (old_blob((2**31, 2**31, 4, 1), []), "0 numbers"),
        (chunk(5, b"123") + chunk(7, number(1, 1)), "ends inside a number"),
        (chunk(8, b"1234") + chunk(7, number(1, 1)), "ends inside a number"),
        (chunk(5, packed([1.0])) + chunk(8, packed([1.0], "d")), "twice"),
        (number(5, 1), "a number where Caffe has bytes"),
        (chunk(1, b"12"), "bytes where Caffe has a number"),
        (chunk(7, chunk(1, b"\xff" * 10)), "a number has no end"),
        (b"\x2a" + varint(2**63) + b"1234", "cut short"),
        (b"\x2a" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (b"\x2b", "wire type 3"),
        (b"\x00\x00", "no field 0"),
    ],
)
def test_blobs_that_lie(saved, blob, message):
    with pytest.raises(ModelError, match=message):
        read_weights(saved(new_layer("a", "Bias", blobs=[blob])))


def test_models_without_weights_in_them(saved):
    for content, message in ((chunk(1, "net"), "no layers"), (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "cannot be read as"),
                             (b"PK\x03\x04\x14\0\x08", "cannot be read as"), (b"\0" * 100, "no field 0"),
                             (b"\x80\x02}q\0", "cannot be read as")):  # fmt: skip
        with pytest.raises(ModelError, match=message):
            read_weights(saved(content))
    with pytest.raises(ModelError, match=r"2013 \(V0\)"):
        read_weights(saved(chunk(2, chunk(1, chunk(1, "conv1") + chunk(50, b"")))))
    assert read_weights(saved(new_layer("relu", "ReLU"))) == {}


@pytest.mark.parametrize("model", [NEW, OLD], ids=["new", "old"])
def test_cut_off_anywhere(model, saved):
    """Only between two layers can it not be told; then what is there is right."""
    whole = read_weights(saved(model))
    taken = {}
    for end in range(1, len(model)):
        read = sound(read_weights, saved(model[:end]))
        sound(read_network_of_weights, saved(model[:end]))
        if read:
            taken[end] = read
    assert len(taken) == 1
    (read,) = taken.values()
    assert list(read) == ["a"]
    assert read["a"][0].equal(whole["a"][0])


def test_every_length_inflated(saved):
    """Each byte in turn is replaced by a length that says far more than there is."""
    for model in (NEW, OLD):
        for at in range(len(model)):
            for size in (0x7F, 2**31 - 1, 2**40, 2**63, 2**64 - 1):
                path = saved(model[:at] + varint(size) + model[at + 1 :])
                for reader in BINARY:
                    sound(reader, path)


@pytest.mark.parametrize(
    "content",
    [
        new_layer("a", "Bias", blobs=[b"\x2a" + varint(2**40) + b"1234"]),
        b"\xa2\x06" + varint(2**62) + b"\x0a",
        new_layer("a", "Bias", blobs=[new_blob((2**20, 2**20, 2**20), [1.0])]),
        chunk(100, b"") * 20_000,
        chunk(100, chunk(7, chunk(5, packed([1.0])) + chunk(7, b"")) * 20_000),
        chunk(100, chunk(2, "ReLU") + chunk(8, b"") * 20_000),
        new_layer("a", "Bias", blobs=[chunk(5, packed([1.0])) + number(99, 1) * 70_000]),
        b"".join(new_layer("a", "Bias", blobs=[chunk(7, chunk(1, b"\x01" * 500_000))]) for _ in range(2)),
    ],
    ids="length layer-length shape layers blobs rules fields axes".split(),
)
def test_memory_stays_small(content, saved):
    path = saved(content)
    for reader in BINARY:
        tracemalloc.start()
        try:
            sound(reader, path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 50 * 2**20


def test_memory_of_weights_is_that_of_the_tensors(saved):
    size = 4 * 2**20
    model = b"".join(
        new_layer(name, "Bias", blobs=[chunk(5, b"\0" * 4 * size) + chunk(7, number(1, size))]) for name in "abc"
    )
    path = saved(model)
    tracemalloc.start()
    read = read_weights(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(read) == 3
    assert peak < 1.05 * len(model)


@FUZZ
@given(st.binary(max_size=200))
@example(b"\n")
@example(b"\x12\x00")
@example(b"\xa2\x06\x00")
def test_random_bytes(saved, content):
    path = saved(content)
    for reader in READERS:
        sound(reader, path)


@FUZZ
@given(
    st.sampled_from([NEW, OLD, TEXT]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), max_size=6),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 20), st.binary(max_size=8)), max_size=4),
)
def test_flipped_bits_and_replaced_pieces(saved, content, flips, edits):
    damaged = bytearray(content)
    for at, bit in flips:
        damaged[at % len(damaged)] ^= 1 << bit
    for place, length, piece in edits:
        at = place % (len(damaged) + 1)
        damaged[at : at + length] = piece
    path = saved(bytes(damaged))
    for reader in READERS:
        sound(reader, path)


@FUZZ
@given(
    st.lists(
        st.sampled_from([*"{}[]<>:;,#\"'\\ \n", "layer", "layers", "name", "type", '"ReLU"', "RELU", "input", "1"])
    )
)
def test_random_texts(saved, words):
    sound(read_network, saved("layer { " + " ".join(words)))
    sound(read_network, saved("".join(words) or " "))


def test_the_most_tiny_fields_that_fit(saved, monkeypatch):
    """Time is bounded whatever the size of the file: hundreds of thousands of fields end in an error, soon.

    A part of the layers that may be, in that part of the time that they may take.
    """
    assert reading.MOST_LAYERS == 32 * 128
    monkeypatch.setattr(reading, "MOST_LAYERS", 128)
    layer = chunk(100, number(99, 1) * 1000)  # just below what a message may have; 99 is a field that nobody knows
    path = saved(layer * 600)
    start = time.process_time()
    with pytest.raises(ModelError, match="more than 128 layers"):
        read_weights(path)
    assert time.process_time() - start < 60 / 32
    with pytest.raises(ModelError, match="more than 1024 fields"):
        read_weights(saved(chunk(100, number(99, 1) * 1_000_000)))
