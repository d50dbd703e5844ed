"""Roles, workflows, environments, sampling schemes and the controller that runs them."""

from verl_mas.workflow.agent import Agent, Agents, Decision, derive_seed, row_key
from verl_mas.workflow.base import TurnWorkflow, Workflow
from verl_mas.workflow.controller import Controller, check_roles
from verl_mas.workflow.environment import Environment, Split, StepOutcome, Task, TaskFamily
from verl_mas.workflow.errors import (
    ControllerError,
    EndOfSampling,
    EnvironmentTimeout,
    GraphError,
    InternalError,
    PromptError,
    WorkflowError,
)
from verl_mas.workflow.graph import Edge, GraphWorkflow, Loop, Node
from verl_mas.workflow.model import Completion, Model, Request, Sampling
from verl_mas.workflow.prompts import check_prompts, placeholders, render
from verl_mas.workflow.rollout import Rollout
from verl_mas.workflow.sampling import (
    SCHEMES,
    IndependentSampling,
    JointSampling,
    ParallelSampling,
    SamplingScheme,
    TreeSampling,
    make_scheme,
)
from verl_mas.workflow.scripted import ScriptedModel

__all__ = [
    "SCHEMES",
    "Agent",
    "Agents",
    "Completion",
    "Controller",
    "ControllerError",
    "Decision",
    "Edge",
    "EndOfSampling",
    "Environment",
    "EnvironmentTimeout",
    "GraphError",
    "GraphWorkflow",
    "IndependentSampling",
    "InternalError",
    "JointSampling",
    "Loop",
    "Model",
    "Node",
    "ParallelSampling",
    "PromptError",
    "Request",
    "Rollout",
    "Sampling",
    "SamplingScheme",
    "ScriptedModel",
    "Split",
    "StepOutcome",
    "Task",
    "TaskFamily",
    "TreeSampling",
    "TurnWorkflow",
    "Workflow",
    "WorkflowError",
    "check_prompts",
    "check_roles",
    "derive_seed",
    "make_scheme",
    "placeholders",
    "render",
    "row_key",
]
