"""Every example in a docstring of the package runs and prints what it says."""

import contextlib
import doctest
import importlib
import io
import pkgutil

import pytest

import hf_metalstm

MODULES = sorted(module.name for module in pkgutil.walk_packages(hf_metalstm.__path__, "hf_metalstm."))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0, report.getvalue()


def test_there_are_examples_to_run():
    finder = doctest.DocTestFinder(exclude_empty=True)
    with_examples = [
        name for name in MODULES if any(test.examples for test in finder.find(importlib.import_module(name)))
    ]
    for needed in ("modeling.recurrent", "modeling.modeling_meta_lstm", "tokenization.tokenization_word"):
        assert f"hf_metalstm.{needed}" in with_examples
