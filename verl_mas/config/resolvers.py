"""OmegaConf resolvers that recipes may use."""

from importlib.util import find_spec
from pathlib import Path

from omegaconf import OmegaConf


def package_dir(name: str) -> str:
    """`${package:NAME}`: the folder of an installed top-level Python package, found without importing it.

    Raises:
        ModuleNotFoundError: it is not installed, or is a single file.
    """
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {name!r} is not installed")
    return str(Path(next(iter(spec.submodule_search_locations))).absolute())


def register_resolvers() -> None:
    """Make the resolvers known to OmegaConf. Safe to call twice."""
    if not OmegaConf.has_resolver("package"):
        OmegaConf.register_new_resolver("package", package_dir)
