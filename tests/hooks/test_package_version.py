"""The version is that of the installed package, and never made up."""

import importlib.metadata

import pytest

import verl_mas


def test_the_version_is_the_installed_packages(monkeypatch):
    monkeypatch.setattr(verl_mas, "version", {"verl-mas": "1.2.3"}.__getitem__)

    assert verl_mas.__version__ == "1.2.3"


def test_the_version_of_a_package_that_is_not_installed_is_an_error(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(verl_mas, "version", missing)

    with pytest.raises(ImportError, match="verl-mas is not installed"):
        _ = verl_mas.__version__


def test_another_missing_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'versions'"):
        _ = verl_mas.versions
