"""From the command line to a complete configuration: the run's own options, and one verl tree for each policy.

Precedence, weakest first, and the only statement of it:

    defaults (schema.py, verl's own tree, conf/verl.yaml and conf/<engine>.yaml)
    < hardware (conf/cpu.yaml or conf/gpu.yaml)
    < the recipe
    < the recipe's section hardware.cpu or hardware.gpu
    < the command line, left to right.

Within a layer, `policies.<name>.KEY` is stronger than `KEY`, which is for every policy. A layer may hold both the run's
options (the fields of RunConfig) and verl's (everything else); of the shared sections `reward` and `algorithm`, the
fields of RewardConfig and AlgorithmConfig are the run's. What follows from the run's options (`derived`) cannot be set
by hand.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from verl_mas.config.derived import claimed, derive
from verl_mas.config.errors import ConfigError, Problems
from verl_mas.config.hardware import HARDWARE, detect_hardware
from verl_mas.config.layers import Merge, Tree, has_key
from verl_mas.config.overrides import Override, parse_overrides
from verl_mas.config.plain import plain_tree, split_plain
from verl_mas.config.recipes import Recipe, find_recipes, load_recipe
from verl_mas.config.resolvers import register_resolvers
from verl_mas.config.resources import devices, run_cpus
from verl_mas.config.schema import PolicyConfig, RoleConfig, RunConfig
from verl_mas.config.sharing import check_role_map, roles_of, settle_sampling
from verl_mas.config.split import POLICY_KEYS, RUN_KEYS, SHARED_KEYS, Layer, split, split_override
from verl_mas.config.suggest import unknown_name_error
from verl_mas.config.verl_tree import open_sections, verl_tree

if TYPE_CHECKING:
    from verl_mas.hooks import Plugins

_COMMAND_LINE = "command line"
_CONF = Path(__file__).parent / "conf"
_RUN_TREE = Tree(
    typed=True,
    open_paths=frozenset({"workflow.options", "environment.options", "reward.options", "algorithm.options"}),
    elements={"roles": RoleConfig, "policies": PolicyConfig},
)


@dataclass(frozen=True)
class Composed:
    """A complete configuration.

    Attributes:
        run: the run's options, typed (RunConfig) and resolved.
        policies: verl's complete tree of each policy that serves a role; verl's own interpolations are left for verl
            to resolve. Empty for a plain verl run.
        verl: the tree of a plain verl run, as verl.trainer.main_ppo would compose it; None for a team.
        facts: what a person may want to know about how it came about.
    """

    run: DictConfig
    policies: dict[str, DictConfig] = field(default_factory=dict)
    verl: DictConfig | None = None
    facts: tuple[str, ...] = ()


def compose(
    argv: Sequence[str],
    plugins: "Plugins",
    *,
    now: datetime | None = None,
    detect: Callable[[], str] = detect_hardware,
) -> Composed:
    """Compose the configuration that the arguments ask for. Reads files, imports neither verl nor torch.

    Args:
        argv: arguments in Hydra's override syntax, `recipe=NAME` among them: `a.b=c`, `+a.b=c` for a key that verl does
            not list, `~a.b` to remove one, `policies.NAME.a.b=c` for one policy.
        plugins: its recipe_dirs are searched for the recipe.
        now: time for the name of the run's folder, the clock's by default.
        detect: what hardware=auto means on this machine.

    Raises:
        ConfigError: unknown keys and names (each with the nearest valid one), values of a wrong type, keys that the run
            derives itself; all that were found.
    """
    register_resolvers()
    problems = Problems()
    overrides = parse_overrides(argv, problems)
    recipe = _recipe(overrides, plugins)
    overrides = [override for override in overrides if override.path != ("recipe",)]
    if recipe.plain:
        return _compose_plain(recipe, overrides, problems, now, detect)

    hardware, hardware_fact = _hardware(overrides, detect, problems)
    files = _file_layers(recipe, hardware)
    command_line = [split_override(override, _COMMAND_LINE) for override in overrides]
    for layer in [*files[1:], *command_line]:
        _refuse_derived(layer, problems)
    run = _run(recipe, hardware, [*files, *command_line], problems, now)
    policies = {
        str(name): tree
        for name in run.policies
        if (tree := _policy_tree(str(name), hardware, files, command_line, problems)) is not None
    }
    addressed = frozenset(override.path[1] for override in overrides if _addresses_policy(override))
    facts = [hardware_fact, *check_role_map(run, addressed, problems)]
    served = roles_of(run)
    policies = {name: tree for name, tree in policies.items() if name in served}
    problems.raise_if_any()
    for name, tree in policies.items():
        derive(run, tree)
        settings = [given for layer in [*files, *command_line] for given in (layer.verl, layer.policies.get(name, {}))]
        _resolve(tree, [_read_conf("verl"), *settings], f"policies.{name}.", problems)
    problems.raise_if_any()
    settle_sampling(run, policies, problems)
    problems.raise_if_any()
    _settle_ray(run, policies)
    return Composed(run, policies, facts=tuple(facts))


def _recipe(overrides: Sequence[Override], plugins: "Plugins") -> Recipe:
    named = [override.value for override in overrides if override.path == ("recipe",) and not override.delete]
    if not named or not named[-1]:
        known = ", ".join(sorted(find_recipes(plugins.recipe_dirs))) or "none"
        raise ConfigError([f"recipe: give recipe=NAME (known: {known})"])
    return load_recipe(str(named[-1]), plugins.recipe_dirs)


def _hardware(overrides: Sequence[Override], detect: Callable[[], str], problems: Problems) -> tuple[str, str]:
    """The hardware of the run ("cpu" or "gpu"), and how it was chosen."""
    named = [override.value for override in overrides if override.path == ("hardware",) and not override.delete]
    asked = str(named[-1]) if named else "auto"
    if asked not in HARDWARE:
        problems.add(f"hardware={asked}: {unknown_name_error('hardware', asked, HARDWARE)}")
    if asked in ("cpu", "gpu"):
        return asked, f"hardware {asked}"
    found = detect()
    return found, f"hardware {found} (found on this machine)"


def _file_layers(recipe: Recipe, hardware: str) -> list[Layer]:
    """The hardware's defaults, the recipe, and the recipe's section for the hardware."""
    name = f"recipe {recipe.name}"
    return [
        split(_read_conf(hardware), f"defaults for {hardware}"),
        split(recipe.body, name, defines=True),
        split(recipe.hardware.get(hardware, {}), f"{name}, hardware.{hardware}"),
    ]


@lru_cache(maxsize=8)
def _read_conf(name: str) -> Mapping[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(_CONF / f"{name}.yaml"))
    if not isinstance(content, dict):
        raise TypeError(f"conf/{name}.yaml must be a mapping")
    return {str(key): value for key, value in content.items()}


def _refuse_derived(layer: Layer, problems: Problems) -> None:
    for prefix, settings in [("", layer.verl), *((f"policies.{name}.", own) for name, own in layer.policies.items())]:
        for path, option in claimed(settings):
            problems.add(f"{prefix}{path} ({layer.where}): follows from the run's own options; use {option}")


def _run(
    recipe: Recipe, hardware: str, layers: Sequence[Layer], problems: Problems, now: datetime | None
) -> DictConfig:
    """The run's own options, resolved."""
    run = OmegaConf.structured(RunConfig)
    for layer in layers:
        merge = Merge(_RUN_TREE, problems, layer.where, defines=layer.defines, force=layer.force)
        override = layer.override
        if override is None or not override.delete:
            merge.into(run, layer.run)
        elif layer.run and not _verl_key(override):
            merge.delete(run, override.path)
    run.recipe = recipe.name
    run.hardware = hardware
    _resolve(run, (layer.run for layer in layers), "", problems)
    if not OmegaConf.is_interpolation(run, "run_dir"):
        _settle_run_dir(run, now)
    return run


def _verl_key(override: Override) -> bool:
    """Whether the argument addresses verl's tree, of all policies or of one."""
    path = override.path
    if path[0] == "policies":
        return len(path) > 2 and path[2] not in POLICY_KEYS
    if path[0] in SHARED_KEYS and len(path) > 1:
        return path[1] not in SHARED_KEYS[path[0]]
    return path[0] not in RUN_KEYS


def _addresses_policy(override: Override) -> bool:
    return override.path[0] == "policies" and len(override.path) > 2 and not override.delete


def _policy_tree(
    name: str, hardware: str, files: Sequence[Layer], command_line: Sequence[Layer], problems: Problems
) -> DictConfig | None:
    """verl's tree of one policy, unresolved; None, and problems, if Hydra cannot compose it."""
    given = [*files, *command_line]
    groups = [group for layer in given for group in layer.groups]
    groups += [group for layer in given for group in layer.policy_groups.get(name, [])]
    try:
        tree = verl_tree(groups)
    except ConfigError as error:
        for problem in error.problems:
            problems.add(problem)
        return None
    engine = str(tree.model_engine)
    if hardware == "cpu" and engine != "dp":
        problems.add(f"policies.{name}.model_engine: {engine} needs hardware=gpu; a CPU runs dp (FSDP)")
        return None
    open_paths = open_sections(tuple(groups))
    shared = Tree(open_paths=open_paths, elsewhere={"": RUN_KEYS, **SHARED_KEYS})
    own = Tree(open_paths=open_paths, elsewhere={"": POLICY_KEYS})

    def apply(layer: Layer, settings: Mapping[str, Any], accepts: Tree, prefix: str, depth: int) -> None:
        merge = Merge(accepts, problems, layer.where, prefix=prefix, force=layer.force)
        override = layer.override
        if override is None or not override.delete:
            merge.into(tree, settings)
        elif settings:
            merge.delete(tree, override.below(depth).path)

    defaults = [split(_read_conf(one), f"defaults, {one}") for one in ("verl", engine) if _has_conf(one)]
    for step in ([*defaults, files[0]], *([layer] for layer in files[1:]), command_line):
        for layer in step:
            apply(layer, layer.verl, shared, "", 0)
        for layer in step:
            apply(layer, layer.policies.get(name, {}), own, f"policies.{name}.", 2)
    return tree


def _has_conf(name: str) -> bool:
    return (_CONF / f"{name}.yaml").is_file()


def _resolve(tree: DictConfig, layers: Iterable[Mapping[str, Any]], prefix: str, problems: Problems) -> None:
    """Replace the interpolations that the layers brought into the tree by their values, in place.

    verl's own stay as they are: they are many, and verl resolves them.
    """
    for path in dict.fromkeys(path for layer in layers for path in _interpolations(layer)):
        parent, _, name = path.rpartition(".")
        node = OmegaConf.select(tree, parent) if parent else tree
        if not isinstance(node, DictConfig) or not has_key(node, name) or not OmegaConf.is_interpolation(node, name):
            continue
        try:
            node[name] = node[name]
        except InterpolationToMissingValueError:
            continue  # the value that is missing is reported
        except OmegaConfBaseException as error:
            reason = " ".join((error.msg or str(error)).split("\n")[0].split())
            problems.add(f"{prefix}{path}: cannot be resolved: {reason}")


def _interpolations(layer: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of the values in which the layer refers to something."""
    for key, value in layer.items():
        name = str(key).removeprefix("+")
        full = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from _interpolations(value, full)
        elif "${" in str(value):
            yield full


def _settle_run_dir(run: DictConfig, now: datetime | None) -> None:
    if run.run_dir is None:
        now = datetime.now(UTC) if now is None else now
        run.run_dir = f"runs/{run.recipe}-{now.astimezone(UTC):%Y%m%d-%H%M%S}"
    run.run_dir = str(Path(run.run_dir).expanduser().absolute())


def _settle_ray(run: DictConfig, policies: Mapping[str, DictConfig]) -> None:
    """Logical resources of a cluster that the run starts itself, where they are not given."""
    if run.ray.address is not None:
        return
    if run.ray.num_cpus is None:
        run.ray.num_cpus = max(run_cpus(run.controller.workers, policies), os.cpu_count() or 1)
    if run.ray.num_gpus is None and run.hardware == "cpu":
        run.ray.num_gpus = devices(policies)


def _compose_plain(
    recipe: Recipe,
    overrides: Sequence[Override],
    problems: Problems,
    now: datetime | None,
    detect: Callable[[], str],
) -> Composed:
    ours, theirs = split_plain(recipe, overrides, problems)
    hardware, fact = _hardware(ours, detect, problems)
    layers = [split_override(override, _COMMAND_LINE) for override in ours]
    run = _run(recipe, hardware, layers, problems, now)
    problems.raise_if_any()
    tree = plain_tree(theirs, problems)
    problems.raise_if_any()
    return Composed(run, verl=tree, facts=(fact, "no roles: everything else is verl's own configuration"))
