import nbformat
import numpy as np
import pytest

from benchkit.errors import InvalidNotebookError
from benchkit.experiment.paths import shipped
from benchkit.experiment.run.kernel import checked_parameters, declared_parameters

CELL = """
text: str = "a=b # not a comment"  # with an equals sign
for_: int = 3  # a name papermill misses
share: float = 0.5
many: list[str] = []
maybe: str | None = None
"""


@pytest.fixture
def notebook(tmp_path):
    def write(source=CELL):
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]})
        path = tmp_path / "n.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), str(path))
        return path

    return write


def test_declared_parameters_have_type_default_comment(notebook):
    parameters = declared_parameters(notebook())

    assert list(parameters) == ["text", "for_", "share", "many", "maybe"]
    assert parameters["text"].default == "a=b # not a comment"
    assert parameters["text"].comment == "with an equals sign"
    assert parameters["for_"].type == "int"
    assert parameters["share"].comment == ""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"txt": "x"}, "no parameter named 'txt': did you mean 'text'?"),
        ({"for_": 2.5}, "'for_' is 2.5: it must be int"),
        ({"for_": True}, "'for_' is True: it must be int"),
        ({"text": None}, "'text' is None: it must be str"),
        ({"many": ("a",)}, "only strings, numbers"),
        ({"share": np.float32(0.5)}, "only strings, numbers"),
        ({"many": [{1: "x"}]}, "only strings, numbers"),
    ],
)
def test_checked_parameters_rejects_values_that_change(notebook, values, message):
    with pytest.raises(InvalidNotebookError) as caught:
        checked_parameters(notebook(), values)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_checked_parameters_returns_json_values(notebook):
    values = {"text": "ü ' \"", "for_": 1, "share": 1, "many": ["a"], "maybe": None}

    assert checked_parameters(notebook(), values) == values


@pytest.mark.parametrize("source", ["import os", "x: int = 3 * 4 + f()", "a = b = 1"])
def test_declared_parameters_rejects_other_statements(notebook, source):
    with pytest.raises(InvalidNotebookError):
        declared_parameters(notebook(source))


@pytest.mark.parametrize("path", sorted(shipped("notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_shipped_notebooks_follow_the_rules(path):
    content = nbformat.read(str(path), as_version=4)
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    bodies = [cell for cell in code if "parameters" not in cell.metadata.get("tags", [])]

    parameters = declared_parameters(path).values()
    assert parameters
    assert all(parameter.type and parameter.comment for parameter in parameters)
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert all(len(cell.source.splitlines()) <= 10 for cell in bodies)
    assert not any("def " in cell.source for cell in bodies)
