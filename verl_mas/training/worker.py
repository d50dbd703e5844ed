"""A Ray actor that executes workflows: the controller, its environments and the router, away from the driver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import transfer_queue
from verl.utils import hf_tokenizer
from verl.workers.rollout.llm_server import LLMServerClient

from verl_mas.hooks import load_plugins
from verl_mas.routing.router import Endpoint, Router
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow.controller import Controller
from verl_mas.workflow.environment import Split, Task
from verl_mas.workflow.model import Sampling
from verl_mas.workflow.sampling import make_scheme


@dataclass(frozen=True, slots=True)
class Named:
    """A plugin by name, and the options to make it with."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """How a worker reaches one policy: verl's client, where its tokenizer lies, and its lengths in tokens."""

    client: LLMServerClient
    tokenizer_path: str
    prompt_length: int
    response_length: int


@dataclass(frozen=True, slots=True)
class Workplace:
    """Everything a worker needs to execute the run's workflow; plain data that travels to the actor.

    Attributes:
        environment, workflow, scheme, reward_manager: by name and options.
        roles: how each role samples. policies: the role map. controller: further options of `Controller`.
    """

    environment: Named
    workflow: Named
    scheme: Named
    reward_manager: Named
    roles: Mapping[str, Sampling]
    policies: Mapping[str, str]
    controller: Mapping[str, Any]


def build_controller(place: Workplace, model: Any) -> Controller:
    """The run's controller over `model`, from the plugins installed in this process."""
    plugins = load_plugins()
    workflow = plugins.workflows[place.workflow.name]
    return Controller(
        model,
        plugins.environments[place.environment.name](**place.environment.options),
        lambda: workflow(**place.workflow.options),
        make_scheme(place.scheme.name, **place.scheme.options),
        plugins.reward_managers[place.reward_manager.name](**place.reward_manager.options),
        roles=place.roles,
        **place.controller,
    )


@ray.remote
class WorkflowWorker:
    """Executes its share of a step's tasks; returns texts and numbers, and leaves the tokens in the partitions."""

    def __init__(self, place: Workplace, servers: Mapping[str, Server]) -> None:
        transfer_queue.init()
        endpoints = {
            policy: Endpoint(
                server.client, hf_tokenizer(server.tokenizer_path), server.prompt_length, server.response_length
            )
            for policy, server in servers.items()
        }
        self._router = Router(endpoints, place.policies)
        self._controller = build_controller(place, self._router)

    async def run(
        self, tasks: Sequence[Task], split: Split, step: int, seed: int, greedy: bool
    ) -> list[Trajectory]:
        """See `Controller.run`; `step` is the step whose weights the servers hold."""
        self._router.new_step(step)
        return await self._controller.run(tasks, split=split, step=step, seed=seed, greedy=greedy)
