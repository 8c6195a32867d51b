"""Modules that an environment imports before the workloads."""

import sys

from benchkit.measure.engines.preload import import_preload


def test_module_is_imported_under_another_name(tmp_path, monkeypatch):
    (tmp_path / "own_arrays.py").write_text("calls = []\ndef register():\n    calls.append(1)\n")
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "array.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_arrays", "own_package", "own_package.array"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    import_preload("own_arrays:register")
    import_preload("own_arrays as own_package.array")

    import own_package.array as array
    from own_package import array as the_same

    assert array is the_same is sys.modules["own_arrays"]
    assert array.calls == [1]
