"""verl's own configuration tree, composed by Hydra from verl's files, without importing verl (which imports torch)."""

import pickle
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_mas.config.errors import ConfigError

#: the file that verl.trainer.main_ppo composes
CONFIG_NAME = "ppo_trainer"


@lru_cache(maxsize=1)
def verl_config_dir() -> Path:
    """The folder verl/trainer/config of the installed verl.

    Raises:
        ModuleNotFoundError: verl is not installed.
    """
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("verl is not installed; see requirements/")
    return Path(next(iter(spec.submodule_search_locations))) / "trainer" / "config"


def is_config_group(name: str) -> bool:
    """Whether `name` is one of verl's config groups, such as `model_engine`."""
    return (verl_config_dir() / name).is_dir()


def verl_tree(overrides: Sequence[str] = ()) -> DictConfig:
    """verl's ppo_trainer tree with Hydra overrides applied, unresolved, as verl.trainer.main_ppo would see it.

    Raises:
        ConfigError: Hydra refuses an override.
    """
    tree: DictConfig = pickle.loads(_pickled_tree(tuple(overrides)))
    return tree


@lru_cache(maxsize=16)
def _pickled_tree(overrides: tuple[str, ...]) -> bytes:
    """Composed once, and kept as a pickle: reading it is a third of the work of OmegaConf's own copy."""
    try:
        with initialize_config_dir(config_dir=str(verl_config_dir()), version_base=None):
            return pickle.dumps(compose(CONFIG_NAME, overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError([f"{' '.join(overrides)}: {' '.join(str(error).split())}"]) from error


@lru_cache(maxsize=16)
def open_sections(overrides: tuple[str, ...] = ()) -> frozenset[str]:
    """Paths of the sections that are empty in verl's tree: they take any key (such as `override_config`)."""
    return frozenset(path for path, value in _leaves(verl_tree(overrides)) if value == {})


def missing_values(tree: DictConfig) -> frozenset[str]:
    """Paths of the values that the tree needs and that nobody gave; interpolations are not followed."""
    return frozenset(path for path, value in _leaves(tree) if value == MISSING)


def _leaves(tree: DictConfig) -> Iterator[tuple[str, Any]]:
    """Every value and every empty section by its path, as plain Python: OmegaConf's own nodes are slow to visit."""
    sections: list[tuple[str, Any]] = [("", OmegaConf.to_container(tree))]
    while sections:
        prefix, section = sections.pop()
        for name, value in section.items():
            if isinstance(value, dict) and value:
                sections.append((f"{prefix}{name}.", value))
            else:
                yield f"{prefix}{name}", value
