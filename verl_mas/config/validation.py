"""Everything that can be known to be wrong before a model loads or Ray starts, found quickly and told at once."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from verl_mas.config.compose import Composed
from verl_mas.config.errors import Problems
from verl_mas.config.factories import (
    make_environment,
    make_estimator,
    make_reward_manager,
    make_workflow,
    sampling_arguments,
    sampling_kind,
)
from verl_mas.config.resolvers import is_installed
from verl_mas.config.resources import devices, run_cpus
from verl_mas.config.sharing import roles_of
from verl_mas.config.suggest import UnknownNameError, unknown_name_error
from verl_mas.config.verl_tree import missing_values
from verl_mas.sandbox.base import SandboxUnavailable
from verl_mas.workflow.prompts import check_prompts
from verl_mas.workflow.sampling import make_scheme

if TYPE_CHECKING:
    from verl_mas.hooks import Plugins

RESUME = ("disable", "auto")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
#: estimators that compare the members of a group, which therefore needs two
_COMPARES = ("at_grpo", "agent_grpo", "rloo", "remax", "magrpo")
_AT_LEAST = {
    "steps": 1,
    "tasks_per_step": 1,
    "sampling.candidates": 1,
    "sampling.n": 1,
    "validation.tasks": 1,
    "validation.every": 0,
    "checkpoint.every": 0,
    "checkpoint.keep": 1,
    "controller.workers": 1,
    "controller.concurrency": 1,
    "controller.retries": 0,
    "diagnostics.max_zero_steps": 0,
}
#: the key under which a name of each kind is written
_KEYS = {
    "workflow": "workflow.name",
    "environment": "environment.name",
    "reward manager": "reward.manager",
    "mixing": "reward.mixing",
    "advantage estimator": "algorithm.adv_estimator",
    "sampling scheme": "sampling.scheme",
    "selection": "sampling.selection",
    "joint": "sampling.joint",
    "branching": "sampling.branching",
    "rule in rule_weights": "reward.options.rule_weights",
}
#: arguments of plugins that have keys of their own outside `options`
_TYPED = ("max_turns", "mixing", "alpha", "lam")
_POSITIVE = ("controller.env_timeout_s", "ray.startup_timeout_s")


def validate(composed: Composed, plugins: "Plugins") -> list[str]:
    """Check a composed configuration; loads no model, starts nothing.

    Returns:
        Facts worth telling, one line each.

    Raises:
        ConfigError: with every problem found, each naming its key and, for names, the nearest valid one.
    """
    problems = Problems()
    facts = list(composed.facts)
    _check_run(composed.run, problems)
    _check_platform(composed.run, plugins, problems)
    if composed.verl is not None:
        facts += _check_plain(composed.verl, problems)
    else:
        _check_team(composed.run, plugins, problems)
        for name, policy in composed.policies.items():
            facts += _check_policy(name, policy, composed.run, problems)
        if composed.run.hardware == "gpu" and not is_installed("flash_attn"):
            facts.append("flash_attn is not installed: by default attention is PyTorch's own, on padded rows")
        facts += _check_resources(composed.run, composed.policies, problems)
    problems.raise_if_any()
    return facts


def _check_run(run: DictConfig, problems: Problems) -> None:
    for key, least in _AT_LEAST.items():
        value = OmegaConf.select(run, key)
        if value < least:
            problems.add(f"{key}: must be at least {least}, not {value}")
    for key in _POSITIVE:
        value = OmegaConf.select(run, key)
        if not 0 < value < float("inf"):
            problems.add(f"{key}: must be a positive number of seconds, not {value}")
    if not 0.0 <= run.controller.max_failure_rate <= 1.0:
        problems.add(f"controller.max_failure_rate: must be in [0, 1], not {run.controller.max_failure_rate}")
    if run.seed < 0:
        problems.add(f"seed: must not be negative, not {run.seed}")
    if run.resume not in RESUME and not Path(run.resume).is_dir():
        problems.add(f"resume: {unknown_name_error('value', run.resume, RESUME)}; a checkpoint folder is valid too")


def _check_platform(run: DictConfig, plugins: "Plugins", problems: Problems) -> None:
    if run.hardware not in plugins.platforms:
        hint = "; install plugins/verl_mas_cpu" if run.hardware == "cpu" else ""
        problems.add(f"hardware={run.hardware}: no installed plugin provides this platform{hint}")


def _check_team(run: DictConfig, plugins: "Plugins", problems: Problems) -> None:
    missing = sorted(OmegaConf.missing_keys(run))
    for key in missing:
        problems.add(f"{key}: needs a value")
    workflow, family = None, None
    if not OmegaConf.is_missing(run.workflow, "name"):
        with _reported("workflow", problems):
            workflow = make_workflow(run, plugins)
    if not any(key.startswith("environment.") for key in missing):
        with _reported("environment", problems):
            family = make_environment(run, plugins)
    with _reported("reward", problems):
        make_reward_manager(run, plugins, family)
    scheme = run.sampling.scheme
    with _reported("sampling", problems):
        make_scheme(scheme, **sampling_arguments(run))
        with _reported("algorithm", problems):
            _check_estimator(run, make_estimator(run, plugins), problems)
    if workflow is not None:
        _check_roles(run, workflow, family, problems)
    if run.policies and not any(run.policies[name].train for name in roles_of(run) if name in run.policies):
        problems.add("policies: none that serves a role has train=true, so there is nothing to train")


def _check_estimator(run: DictConfig, estimator: Any, problems: Problems) -> None:
    scheme, name = run.sampling.scheme, run.algorithm.adv_estimator
    refusal: Callable[[str], str | None] | None = getattr(estimator, "refusal", None)
    reason = refusal(sampling_kind(run)) if refusal is not None else None
    if reason is not None:
        problems.add(f"sampling.scheme={scheme}: {reason}")
    key = "candidates" if scheme == "tree" else "n"
    if name in _COMPARES and run.sampling[key] < 2:
        problems.add(
            f"sampling.{key}: must be at least 2 for {name}, which compares the members of a group, "
            f"not {run.sampling[key]}"
        )


def _check_roles(run: DictConfig, workflow: Any, family: Any, problems: Problems) -> None:
    for role in run.roles:
        if role not in workflow.roles:
            problems.add(f"roles.{role}: {unknown_name_error('role', str(role), workflow.roles)}")
    for role in workflow.roles:
        if role not in run.roles:
            problems.add(f"roles.{role}: the workflow {run.workflow.name} has this role; add roles.{role}.policy")
    if family is None:
        return
    prompts = {str(role): one.prompt for role, one in run.roles.items() if one.prompt and role in workflow.roles}
    with _reported("roles", problems):
        check_prompts(workflow.roles, family, prompts)


def _check_policy(name: str, policy: DictConfig, run: DictConfig, problems: Problems) -> list[str]:
    prefix = f"policies.{name}."
    unused = {"reward.reward_model.rollout.name"} if not policy.reward.reward_model.enable else set()
    missing = missing_values(policy) - unused
    for key in sorted(missing):
        problems.add(f"{prefix}{key}: needs a value")
    _check_batch(prefix, policy, run, problems)
    _check_critic(prefix, policy, run, problems)
    for role in roles_of(run)[name]:
        limit, longest = policy.actor_rollout_ref.rollout.response_length, run.roles[role].sampling.max_tokens
        if not 1 <= longest <= limit:
            problems.add(
                f"roles.{role}.sampling.max_tokens: must be from 1 to {prefix}data.max_response_length={limit}, "
                f"not {longest}"
            )
    if "actor_rollout_ref.model.path" in missing:
        return []
    return _check_model(f"{prefix}actor_rollout_ref.model.path", str(policy.actor_rollout_ref.model.path), problems)


def _check_batch(prefix: str, policy: DictConfig, run: DictConfig, problems: Problems) -> None:
    """What verl asks of batch sizes, as far as it holds for the uneven rows of a team."""
    for section in ("actor_rollout_ref.actor", "critic"):
        settings = OmegaConf.select(policy, section)
        if section == "critic" and not _has_critic(policy):
            continue
        key, size = f"{prefix}{section}.ppo_mini_batch_size", settings.ppo_mini_batch_size
        if size < 1 or run.tasks_per_step % size:
            problems.add(f"{key}={size}: tasks_per_step={run.tasks_per_step} must be a multiple of it")
        if not settings.use_dynamic_bsz:
            problems.add(
                f"{prefix}{section}.use_dynamic_bsz: must be true; policies get uneven numbers of rows, which "
                "micro-batches of a fixed size refuse"
            )
            continue
        longest = policy.data.max_prompt_length + policy.data.max_response_length
        room = settings.ppo_max_token_len_per_gpu * settings.get("ulysses_sequence_parallel_size", 1)
        if room < longest:
            problems.add(
                f"{prefix}{section}.ppo_max_token_len_per_gpu: must hold the longest row, data.max_prompt_length + "
                f"data.max_response_length = {longest} tokens, not {room}"
            )
    width = policy.actor_rollout_ref.rollout.tensor_model_parallel_size
    count = policy.trainer.n_gpus_per_node * policy.trainer.nnodes
    if count < 1:
        problems.add(f"{prefix}trainer.n_gpus_per_node: must be at least 1, not {policy.trainer.n_gpus_per_node}")
    elif width < 1 or count % width:
        problems.add(
            f"{prefix}actor_rollout_ref.rollout.tensor_model_parallel_size={width}: must divide the policy's "
            f"{count} devices (trainer.n_gpus_per_node * trainer.nnodes)"
        )


def _check_critic(prefix: str, policy: DictConfig, run: DictConfig, problems: Problems) -> None:
    """Estimators over tokens need the values of a critic, and verl's critics on a GPU need FlashAttention."""
    if run.algorithm.adv_estimator == "gae" and policy.critic.enable is False:
        problems.add(f"{prefix}critic.enable=false: gae needs a critic for every policy that is trained")
    fsdp_on_gpu = run.hardware == "gpu" and policy.model_engine == "dp"
    if fsdp_on_gpu and _has_critic(policy) and not is_installed("flash_attn"):
        problems.add(f"{prefix}critic: verl loads it with FlashAttention, whatever is configured; install flash-attn")


def _has_critic(policy: DictConfig) -> bool:
    enabled = policy.critic.enable
    return bool(enabled) if enabled is not None else policy.algorithm.adv_estimator == "gae"


def _check_model(key: str, path: str, problems: Problems) -> list[str]:
    """A model is a folder with a config.json, or a hub's "owner/name"."""
    local = Path(path).expanduser()
    if local.is_dir():
        if not (local / "config.json").is_file():
            problems.add(f"{key}: {local} holds no config.json, so it is no model")
        return []
    if _HUB_ID.fullmatch(path):
        return [f"{key}: {path} is no folder here, so it comes from the model hub"]
    problems.add(f"{key}: {path} does not exist; give a folder, or a hub's owner/name")
    return []


def _check_resources(run: DictConfig, policies: Mapping[str, DictConfig], problems: Problems) -> list[str]:
    if not policies:
        return []
    first, *others = policies
    for name in others:
        if policies[name].transfer_queue != policies[first].transfer_queue:
            problems.add(
                f"policies.{name}.transfer_queue: differs from that of {first}; policies share one, so set it for all"
            )
    needed = run_cpus(run.controller.workers, policies)
    fact = f"Ray needs {needed} logical CPUs and {devices(policies)} logical devices"
    if run.ray.address is not None:
        for key in ("num_cpus", "num_gpus"):
            if run.ray[key] is not None:
                problems.add(f"ray.{key}: is for a cluster that the run starts, not for ray.address={run.ray.address}")
        return [fact]
    _check_count("ray.num_cpus", run.ray.num_cpus, needed, "logical CPUs", problems)
    if run.ray.num_gpus is not None:
        _check_count("ray.num_gpus", run.ray.num_gpus, devices(policies), "logical devices", problems)
    return [fact]


def _check_plain(tree: DictConfig, problems: Problems) -> list[str]:
    needed = run_cpus(tree.actor_rollout_ref.rollout.agent.num_workers, {"": tree})
    configured = tree.ray_kwargs.ray_init.num_cpus
    if configured is not None:
        _check_count("ray_kwargs.ray_init.num_cpus", configured, needed, "logical CPUs", problems)
    return [f"Ray needs {needed} logical CPUs and {devices({'': tree})} devices"]


def _check_count(key: str, configured: int, needed: int, what: str, problems: Problems) -> None:
    if configured < needed:
        problems.add(
            f"{key}={configured}: the run needs {needed} {what}, and Ray would wait for the others for ever; they are "
            f"counts, not hardware: set {key}={needed} or more"
        )


@contextmanager
def _reported(section: str, problems: Problems) -> Iterator[None]:
    """Turn what a plugin says against its options into a problem of the section."""
    try:
        yield
    except UnknownNameError as error:
        key = _KEYS.get(error.kind, section)
        if error.kind.endswith("option"):
            key = f"{section}.{error.name}" if error.name in _TYPED else f"{section}.options.{error.name}"
        problems.add(f"{key}: {error}")
    except (ValueError, SandboxUnavailable) as error:
        problems.add(f"{section}: {error}")
