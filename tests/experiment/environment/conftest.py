import pytest


@pytest.fixture
def source(tmp_path):
    """Return the folder of a local package without dependencies."""
    folder = tmp_path / "toy"
    (folder / "toy_thing").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "toy-thing"\nversion = "1"\n'
    )
    (folder / "toy_thing" / "__init__.py").write_text("VALUE = 1\n")
    return folder
