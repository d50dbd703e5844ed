"""A plain verl run (`recipe=verl`): one policy, no roles, and the command line of verl.trainer.main_ppo."""

from collections.abc import Sequence

from omegaconf import DictConfig

from verl_mas.config.errors import ConfigError, Problems
from verl_mas.config.layers import Merge, Tree
from verl_mas.config.overrides import Override
from verl_mas.config.recipes import Recipe
from verl_mas.config.split import RUN_KEYS, SHARED_KEYS
from verl_mas.config.verl_tree import is_config_group, open_sections, verl_tree

#: the run's options that also mean something where verl does everything else
PLAIN_KEYS = ("recipe", "run_dir", "dry_run", "hardware")


def split_plain(
    recipe: Recipe, overrides: Sequence[Override], problems: Problems
) -> tuple[list[Override], list[Override]]:
    """The overrides for the run, and those for verl. Options of the run that verl does not know are problems."""
    if recipe.body or recipe.hardware:
        keys = ", ".join([*recipe.body, *(["hardware"] if recipe.hardware else [])])
        problems.add(f"{recipe.path}: has {keys} but no roles; a recipe names a workflow and roles, or nothing")
    ours = [override for override in overrides if override.path[0] in PLAIN_KEYS]
    theirs = [override for override in overrides if override.path[0] not in PLAIN_KEYS]
    for override in theirs:
        if override.path[0] in RUN_KEYS and override.path[0] not in SHARED_KEYS:
            problems.add(
                f"{override.text}: recipe={recipe.name} has no roles and passes everything to verl, which has no such "
                "key; use verl's own (data.*, trainer.*, actor_rollout_ref.*)"
            )
    return ours, theirs


def plain_tree(overrides: Sequence[Override], problems: Problems) -> DictConfig | None:
    """verl's tree with the overrides as Hydra applies them, unresolved; None, and problems, if a key does not exist."""
    groups = tuple(override.text for override in overrides if override.package or _names_group(override))
    base = verl_tree(groups)
    tree = Tree(open_paths=open_sections(groups), elsewhere={"": frozenset(PLAIN_KEYS)}, checks_values=False)
    found = Problems()
    for override in overrides:
        if override.package or _names_group(override):
            continue
        merge = Merge(tree, found, "command line", force=override.add)
        if override.delete:
            merge.delete(base, override.path)
        else:
            merge.into(base, override.nested())
    for problem in found:
        problems.add(problem)
    if found:
        return None
    try:
        return verl_tree([override.text for override in overrides])
    except ConfigError as error:
        for problem in error.problems:
            problems.add(problem)
        return None


def _names_group(override: Override) -> bool:
    return len(override.path) == 1 and isinstance(override.value, str) and is_config_group(override.path[0])
