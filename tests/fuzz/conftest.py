import pytest


@pytest.fixture
def written(tmp_path):
    def write(content, name="file"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
