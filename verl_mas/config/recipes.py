"""Recipes: YAML files that hold data only, found in the folders that plugins name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_mas.config.errors import ConfigError
from verl_mas.config.suggest import unknown_name_error

if TYPE_CHECKING:
    from verl_mas.hooks import Plugins


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe as it is written.

    Attributes:
        name: what the user typed. path: the file.
        description: its line in the list.
        body: everything but the description and the hardware sections.
        hardware: the sections `cpu` and `gpu`, for the hardware of that name.
    """

    name: str
    path: Path
    description: str
    body: Mapping[str, Any]
    hardware: Mapping[str, Mapping[str, Any]]

    @property
    def plain(self) -> bool:
        """Whether this is a recipe for verl alone: no workflow, no roles."""
        return "workflow" not in self.body and "roles" not in self.body


def find_recipes(directories: Sequence[Path]) -> dict[str, Path]:
    """The recipes in the folders, by name (the file's name without .yaml).

    Raises:
        ConfigError: two folders hold a recipe of one name.
    """
    found: dict[str, Path] = {}
    for directory in dict.fromkeys(path.resolve() for path in directories):
        for path in sorted(directory.glob("*.yaml")):
            if path.stem in found:
                raise ConfigError([f"recipe={path.stem}: there are two: {found[path.stem]} and {path}"])
            found[path.stem] = path
    return found


def list_recipes(plugins: "Plugins") -> list[tuple[str, str]]:
    """Every recipe's name and one-line description, sorted by name."""
    paths = find_recipes(plugins.recipe_dirs)
    return [(name, read_recipe(name, path).description) for name, path in sorted(paths.items())]


def load_recipe(name: str, directories: Sequence[Path]) -> Recipe:
    """The recipe called `name`, or the one in the file `name` if that ends in .yaml.

    Raises:
        ConfigError: it does not exist (the nearest is named), or cannot be read.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        if not path.is_file():
            raise ConfigError([f"recipe={name}: no such file"])
        return read_recipe(name, path)
    paths = find_recipes(directories)
    if name not in paths:
        raise ConfigError([f"recipe={name}: {unknown_name_error('recipe', name, paths)}"])
    return read_recipe(name, paths[name])


def read_recipe(name: str, path: Path) -> Recipe:
    """Read one recipe file.

    Raises:
        ConfigError: it is not YAML, not a mapping, lacks a description, or has a malformed hardware section.
    """
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: not readable as YAML: {error}"]) from error
    if not isinstance(content, dict):
        raise ConfigError([f"{path}: a recipe is a mapping of keys to values"])
    body = {str(key): value for key, value in content.items()}
    description = body.pop("description", None)
    if not isinstance(description, str) or not description.strip():
        raise ConfigError([f"{path}: needs a description: one line that says what the recipe trains"])
    sections = body.pop("hardware", None) or {}
    if not isinstance(sections, dict):
        raise ConfigError([f"{path}: hardware holds the sections cpu and gpu; choose one with hardware=cpu|gpu"])
    for section, values in sections.items():
        if section not in ("cpu", "gpu"):
            raise ConfigError([f"{path}: {unknown_name_error('hardware section', str(section), ('cpu', 'gpu'))}"])
        if values is not None and not isinstance(values, dict):
            raise ConfigError([f"{path}: hardware.{section} must be a mapping of keys to values"])
    return Recipe(
        name=path.stem if name.endswith((".yaml", ".yml")) else name,
        path=path,
        description=" ".join(description.split()),
        body=body,
        hardware={section: values or {} for section, values in sections.items()},
    )
