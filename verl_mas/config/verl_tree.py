"""verl's own configuration tree, composed by Hydra from verl's files, without importing verl (which imports torch)."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
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
    return _cached_tree(tuple(overrides)).copy()


@lru_cache(maxsize=16)
def _cached_tree(overrides: tuple[str, ...]) -> DictConfig:
    try:
        with initialize_config_dir(config_dir=str(verl_config_dir()), version_base=None):
            return compose(CONFIG_NAME, overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError([f"{' '.join(overrides)}: {' '.join(str(error).split())}"]) from error


@lru_cache(maxsize=16)
def open_sections(overrides: tuple[str, ...] = ()) -> frozenset[str]:
    """Paths of the sections that are empty in verl's tree: they take any key (such as `override_config`)."""
    return frozenset(path for path, value in walk(_cached_tree(overrides)) if value is not None and not len(value))


def walk(tree: DictConfig, path: str = "") -> Iterator[tuple[str, DictConfig | None]]:
    """Every section of the tree by path, and (with None) every missing value; interpolations are not followed."""
    for name in map(str, tree):
        full = f"{path}.{name}" if path else name
        if OmegaConf.is_missing(tree, name):
            yield full, None
        elif not OmegaConf.is_interpolation(tree, name) and isinstance(tree[name], DictConfig):
            yield full, tree[name]
            yield from walk(tree[name], full)
