import pytest


@pytest.fixture
def saved(tmp_path):
    """Writes text or bytes to a file and gives its path."""

    def save(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return save
