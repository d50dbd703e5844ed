"""OmegaConf resolvers that recipes may use."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf


def package_dir(name: str) -> str:
    """`${package:NAME}`: the folder of an installed top-level Python package, found without importing it.

    Raises:
        ModuleNotFoundError: it is not installed, or is a single file.
    """
    spec = _spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {name!r} is not installed")
    return str(Path(next(iter(spec.submodule_search_locations))).absolute())


def is_installed(name: str) -> bool:
    """Whether there is a top-level Python package of this name, found without importing it."""
    return _spec(name) is not None


def _spec(name: str) -> ModuleSpec | None:
    return find_spec(name) if name.isidentifier() else None


def if_installed(name: str, there: Any, missing: Any) -> Any:
    """`${if_installed:NAME,THERE,MISSING}`: one of two values, by whether a Python package is installed."""
    return there if is_installed(name) else missing


def register_resolvers() -> None:
    """Make the resolvers known to OmegaConf. Safe to call twice."""
    for name, resolver in (("package", package_dir), ("if_installed", if_installed)):
        if not OmegaConf.has_resolver(name):
            OmegaConf.register_new_resolver(name, resolver)
