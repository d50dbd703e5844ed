"""A Ray actor that executes workflows: the controller, its environments and the router, away from the driver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import transfer_queue
from omegaconf import DictConfig
from verl.utils import hf_tokenizer
from verl.workers.rollout.llm_server import LLMServerClient

from verl_mas.config.factories import make_environment, make_reward_manager, make_workflow, sampling_arguments
from verl_mas.hooks import load_plugins
from verl_mas.routing.router import Endpoint, Router
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow.controller import Controller
from verl_mas.workflow.environment import Split, Task
from verl_mas.workflow.model import Model, Sampling
from verl_mas.workflow.sampling import make_scheme


@dataclass(frozen=True, slots=True)
class Server:
    """How a worker reaches one policy: verl's client, where its tokenizer lies, and its lengths in tokens."""

    client: LLMServerClient
    tokenizer_path: str
    prompt_length: int
    response_length: int


def build_controller(run: DictConfig, model: Model) -> Controller:
    """The run's controller over `model`, from the plugins installed in this process.

    Args:
        run: the run's own options, resolved (RunConfig).
    """
    plugins = load_plugins()
    settings, family = run.controller, make_environment(run, plugins)
    reward_manager = make_reward_manager(run, plugins, family)
    reward_manager.open(Path(run.run_dir), settings.workers)
    return Controller(
        model,
        family,
        lambda: make_workflow(run, plugins),
        make_scheme(run.sampling.scheme, **sampling_arguments(run)),
        reward_manager,
        roles={
            role: Sampling(one.sampling.temperature, one.sampling.top_p, one.sampling.top_k, one.sampling.max_tokens)
            for role, one in run.roles.items()
        },
        prompts={role: one.prompt for role, one in run.roles.items() if one.prompt is not None},
        concurrency=settings.concurrency,
        env_timeout_s=settings.env_timeout_s,
        max_failure_rate=settings.max_failure_rate,
        retries=settings.retries,
        deterministic=run.deterministic,
    )


class WorkflowWorker:
    """Executes its share of a step's tasks; returns texts and numbers, and leaves the tokens in the partitions.

    `Team.start` makes Ray actors of it.
    """

    def __init__(self, run: DictConfig) -> None:
        self._run = run

    def connect(self, servers: Mapping[str, Server]) -> None:
        """Learn where the policies are served; called once, before `run`."""
        transfer_queue.init()
        endpoints = {
            policy: Endpoint(
                server.client, hf_tokenizer(server.tokenizer_path), server.prompt_length, server.response_length
            )
            for policy, server in servers.items()
        }
        self._router = Router(endpoints, {role: one.policy for role, one in self._run.roles.items()})
        self._controller = build_controller(self._run, self._router)

    async def run(self, tasks: Sequence[Task], split: Split, step: int, greedy: bool) -> list[Trajectory]:
        """See `Controller.run`; `step` is the step whose weights the servers hold."""
        self._router.new_step(step)
        return await self._controller.run(tasks, split=split, step=step, seed=self._run.seed, greedy=greedy)

    async def close(self) -> None:
        """See `Controller.close`."""
        await self._controller.close()
