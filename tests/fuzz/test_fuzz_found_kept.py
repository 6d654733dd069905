"""What the fuzzer found in networks, archives and what excite keeps for itself, each as small as it gets."""

import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from fuzzed_caffe import _chain
from fuzzed_kept import ENTRIES, KEY, ROWS, _fit

from excite.attention import AttentionMap
from excite.errors import DataError, ExciteError, ModelError
from excite.export.formats import check_overwrite
from excite.io.archives import members, unpack
from excite.jobs import ResultStore
from excite.jobs.parquet import arrow, save_parquet
from excite.models.caffe.network import CaffeNetwork
from excite.models.caffe.reading import read_network
from excite.tags import database
from excite.tags.captions import read_captions
from excite.tags.cleaning import SurveyStore, survey
from excite.tags.corpus import Corpus
from excite.tags.dictionary import TagNormaliser
from excite.tags.images.shards import make_index, read_index
from excite.tags.rules import CorpusSurvey, Rules
from excite.training.features import FeatureStore


class TestNetworks:
    def test_thousands_of_layers_of_one_name(self, written):
        """They get underscores; each tried all of those before it."""
        text = _chain(1_500, "ReLU")
        for k in range(1_500):
            text = text.replace(f'name: "r{k}"', 'name: "same"', 1)
        network = CaffeNetwork(read_network(written(text, "net.prototxt")))
        assert [name for name, _ in network.named_children()][:3] == ["same", "same_", "same__"]

    def test_a_layer_without_outputs(self, written):
        layer = (
            'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "a" inner_product_param { num_output: 0 } }'
        )
        path = written(f"{_chain(0, 'ReLU')}\n{layer}", "net.prototxt")
        with pytest.raises(ModelError, match="has no outputs"):
            CaffeNetwork(read_network(path))

    @pytest.mark.parametrize("option", ["kernel_size: 0", "stride: 0", "kernel_size: 3 kernel_size: 3"])
    def test_windows_that_are_none(self, option, written):
        options = f"convolution_param {{ num_output: 2 kernel_size: 3 {option} }}"
        layer = f'layer {{ name: "c" type: "Convolution" bottom: "data" top: "c" {options} }}'
        with pytest.raises(ModelError, match=r"both must be at least 1|where images have two sides"):
            CaffeNetwork(read_network(written(f"{_chain(0, 'ReLU')}\n{layer}", "net.prototxt")))

    def test_a_checkpoint_of_other_shapes(self, tmp_path):
        _fit().save(tmp_path / "checkpoint", KEY)
        other = _fit()
        other.descent.weights["bias"] = torch.nn.Parameter(torch.zeros(7))
        with pytest.raises(ModelError, match="it is of another training"):
            other.resume(tmp_path / "checkpoint", KEY)


class TestArchives:
    def unpacked(self, path):
        with members(path) as found:
            return list(unpack(found, path.with_name("out")))

    def test_what_is_no_archive_is_told_in_one_line(self, written):
        with pytest.raises(DataError, match=r"is damaged: file could not be opened successfully:?$"):
            self.unpacked(written(b"no archive" * 99, "data.tar"))

    def test_damaged_lzma(self, written):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("a", bytes(range(256)) * 40)
        content = bytearray(file.getvalue())
        content[60:80] = b"\xff" * 20
        with pytest.raises(DataError, match=r"data\.zip is no archive that can be unpacked, or is damaged"):
            self.unpacked(written(bytes(content), "data.zip"))

    def test_a_broken_zip_is_none_of_ours(self, written):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("map/excite.json", "{}")
        content = file.getvalue().replace(b"PK\1\2", b"PK\1\3")
        with pytest.raises(ExciteError, match="was not made by excite export"):
            check_overwrite(written(content, "map.pt2"))


class TestKept:
    def test_a_map_nested_without_end(self, written):
        with pytest.raises(ExciteError, match="is not JSON"):
            AttentionMap.load(written("[" * 100_000, "map.json"))

    def test_a_map_that_is_none_names_its_file(self, tmp_path):
        made = AttentionMap(torch.eye(2), "cat", "pool2", "mwp", 1.0, (2, 2)).save(tmp_path / "map.json")
        content = {**json.loads(made.read_text()), "image_size": [0, 2]}
        made.write_text(json.dumps(content))
        with pytest.raises(ExciteError, match=r"map\.json' is not a saved map"):
            AttentionMap.load(made)

    def test_a_picture_of_captions_whose_number_is_a_list(self, written):
        content = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": [], "caption": "a dog"}]}
        with pytest.raises(DataError, match="is no caption file of COCO"):
            read_captions(written(json.dumps(content), "captions.json"), None)

    def test_a_shard_whose_file_has_no_end(self, written):
        about = tarfile.TarInfo("a.png")
        about.size = 2**70
        with pytest.raises(DataError, match=r"cannot read the shard .*pics\.tar"):
            make_index(written(about.tobuf(tarfile.GNU_FORMAT) + bytes(1024), "pics.tar"))

    def test_a_shard_with_a_file_of_less_than_nothing(self, written):
        about = bytearray(tarfile.TarInfo("a.png").tobuf(tarfile.GNU_FORMAT))
        about[124:136] = b"\xff" * 11 + b"\0"  # -256 in base 256
        about[148:156] = b" " * 8
        about[148:156] = f"{sum(about):06o}\0 ".encode()
        with pytest.raises(DataError, match="fewer than no bytes"):
            make_index(written(bytes(about) + bytes(1024), "pics.tar"))

    def test_an_index_that_is_cut_off_is_made_anew(self, written):
        file = io.BytesIO()
        np.save(file, np.arange(10, dtype=np.uint64))
        content = file.getvalue().replace(b"}", b" ")
        assert read_index(written(content, "pics.tar.index")) is None

    def test_a_survey_that_is_cut_off(self, tmp_path):
        store = SurveyStore(tmp_path)
        for table in ("images", "counts"):
            store.path("key", table).write_bytes(b"PAR1 half")
        with pytest.raises(DataError, match=r"key\.images\.parquet is damaged .*: remove it and start again"):
            store.check(["key"])

    def test_a_survey_with_rows_that_are_none(self, tmp_path):
        """Its bytes are good Parquet, and say another thing."""
        store = SurveyStore(tmp_path)
        images, counts = survey(arrow().RecordBatch.from_pydict(ROWS), TagNormaliser())
        rows = arrow().array([2**32 + row for row in range(len(images))], images["row"].type)
        images = images.set_column(images.column_names.index("row"), "row", rows)
        paths = [store.path("key", table) for table in ("images", "counts")]
        for path, table in zip(paths, (images, counts), strict=True):
            arrow().parquet.write_table(table, path)
        with database(reads=tmp_path) as tables, pytest.raises(DataError, match=r"a survey in .* is damaged"):
            CorpusSurvey(tables, paths[:1], paths[1:]).verdicts(Rules())

    def test_a_corpus_whose_columns_have_no_names(self, written):
        file = io.BytesIO()
        arrow().parquet.write_table(arrow().table({"image": ["a"], "tags": ["b"], "user": ["c"], "zzzz": [1]}), file)
        content = file.getvalue().replace(b"zzzz", b"\xff\xfe\xfd\xfc")
        with pytest.raises(DataError, match=r"tags\.parquet"):
            Corpus(written(content, "tags.parquet"))

    def test_a_ledger_whose_json_is_broken(self, tmp_path):
        save_parquet(tmp_path / "records.parquet", ENTRIES)
        path = tmp_path / "records.parquet/part-00000.parquet"
        table = arrow().parquet.read_table(path)
        boxes = table.schema.get_field_index("boxes")
        table = table.set_column(boxes, "boxes", arrow().array(["[[1"] * len(ENTRIES)))
        arrow().parquet.write_table(table, path)
        with pytest.raises(ExciteError, match=r"part-00000\.parquet' is damaged"):
            ResultStore(tmp_path / "records.jsonl", ("image",), parquet=True).read()

    def test_features_that_are_nowhere_are_computed_again(self, written):
        lines = [
            {"key": "a", "picture": "a", "start": 0, "shape": [3, "x"]},
            {"key": "b", "picture": "b", "start": [], "shape": [1]},
        ]
        path = written("".join(json.dumps(line) + "\n" for line in lines), "kept/index.jsonl")
        path.with_name("features.bin").write_bytes(bytes(100))
        assert FeatureStore(path.parent).read() == {}
