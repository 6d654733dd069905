"""All readers of files that others may have written."""

from importlib import import_module

from fuzzed import Reader
from fuzzed_archives import READERS as ARCHIVES
from fuzzed_caffe import READERS as CAFFE
from fuzzed_datasets import READERS as DATASETS
from fuzzed_kept import READERS as KEPT
from fuzzed_phrases import READERS as PHRASES
from fuzzed_pictures import READERS as PICTURES
from fuzzed_proposals import READERS as PROPOSALS
from fuzzed_tags import READERS as TAGS
from fuzzed_weights import READERS as WEIGHTS

__all__ = ["READERS"]

KINDS = (PICTURES, DATASETS, PHRASES, PROPOSALS, CAFFE, WEIGHTS, ARCHIVES, TAGS, KEPT)
READERS: dict[str, Reader] = {reader.name: reader for readers in KINDS for reader in readers}

for late in (
    "pyarrow.compute",
    "pyarrow.parquet",
    "safetensors.torch",
    "scipy.io",
    "simplemma",
    "google.protobuf.text_format",
):
    import_module(late)  # what readers import when they need it is there before any process is begun
