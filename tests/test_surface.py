"""Public names, commands, metrics and errors match the documentation."""

import importlib
import inspect
import pkgutil

import pytest

import benchkit
from benchkit import errors
from benchkit.cli.main import benchkit as command
from benchkit.store.schema import METRICS, OUTCOMES

MODULES = [
    module.name
    for module in pkgutil.walk_packages(benchkit.__path__, "benchkit.")
    if not module.name.endswith("__main__") and ".shipped" not in module.name
]


def test_names_without_underscore_are_documented():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        assert set(getattr(module, "__all__", [])) <= set(dir(module)), name
        for public, thing in vars(module).items():
            is_own = getattr(thing, "__module__", "") == name and not public.startswith("_")
            if is_own and (inspect.isfunction(thing) or inspect.isclass(thing)):
                assert inspect.getdoc(thing), f"{name}.{public} has no docstring"


def test_public_names_can_be_imported():
    assert all(getattr(benchkit, name) is not None for name in benchkit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        benchkit.nothing  # noqa: B018


def test_errors_are_exported_and_have_exit_codes():
    found = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.BenchkitError)
    }

    assert found <= set(errors.__all__)
    assert all(getattr(errors, name).exit_code in (2, 3, 4) for name in found)


def _walk(group, path=()):
    for name, child in group.commands.items():
        yield (*path, name), child
        yield from _walk(child, (*path, name)) if hasattr(child, "commands") else ()


def test_commands_and_options_have_help():
    for path, found in _walk(command):
        assert found.help, path
        for parameter in found.params:
            if parameter.param_type_name == "option":
                assert parameter.help, f"{path}: {parameter.opts[0]} has no help"


def test_metrics_and_outcomes_match_contract():
    assert len(METRICS) >= 27
    assert set(OUTCOMES) == {
        *("ok", "wrong_answer", "failed", "timeout", "lost_workers", "infrastructure", "skipped")
    }
