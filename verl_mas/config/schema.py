"""Every option of verl-mas that is not verl's own, typed once, with its default.

verl's options are not repeated here: whatever is not named in RunConfig belongs to verl's tree (`compose` says how the
two meet). `None` means "what the next layer down does by default", and says which.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class WorkflowConfig:
    """Who acts when."""

    # name of a workflow that a plugin provides
    name: str = MISSING
    # turns after which a trajectory ends; None: the workflow's own
    max_turns: int | None = None
    # further arguments of the workflow
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class EnvironmentConfig:
    """The tasks, and how actions change and score them."""

    # name of a task family that a plugin provides
    name: str = MISSING
    # arguments of the task family
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class RoleSamplingConfig:
    """How a role samples in training; None: as its policy's actor_rollout_ref.rollout says. Validation is greedy."""

    # roles of one policy must agree on it: verl computes log-probabilities at one temperature per policy
    temperature: float | None = None
    top_p: float | None = None
    # -1: all tokens
    top_k: int | None = None
    # longest response in tokens; None: the policy's data.max_response_length
    max_tokens: int | None = None


@dataclass
class RoleConfig:
    """One role of the workflow."""

    # name of the policy that serves the role; roles that name the same policy share its weights
    policy: str = MISSING
    sampling: RoleSamplingConfig = field(default_factory=RoleSamplingConfig)
    # prompt template with {placeholders}, instead of the environment's
    prompt: str | None = None


@dataclass
class PolicyConfig:
    """One set of weights. Every other key under policies.<name> overrides verl's tree for this policy alone."""

    # false: the policy serves its roles, and its weights stay as they are
    train: bool = True


@dataclass
class SamplingConfig:
    """How the responses of a training step are sampled."""

    # tree: candidates per decision, scored on copies, one committed; parallel: n independent trajectories per task;
    # joint: groups of joint actions of roles that answer a turn synchronously
    scheme: str = "tree"
    # tree: responses per decision (K)
    candidates: int = 4
    # tree: which candidate is committed: greedy, first or sample
    selection: str = "greedy"
    # parallel: trajectories per task; joint: responses of each role to the prompt of a group (G)
    n: int = 4
    # joint: aligned (response g of every role makes joint action g) or cross (the product of the roles' responses)
    joint: str = "aligned"
    # joint: linear (joint actions go on side by side) or tree (a group below every joint action: G^turns of them)
    branching: str = "linear"
    # joint: a group whose mean joint reward exceeds it does not go on; None: never
    stop_threshold: float | None = None


@dataclass
class RewardConfig:
    """How scores become rewards. Other keys of `reward` are verl's."""

    # name of a reward manager that a plugin provides
    manager: str = "rule"
    # sum: alpha * team + mask * local; convex: lam * team + (1 - lam) * mask * local; None: the manager's own
    mixing: str | None = None
    # weight of the team score under sum; None: the manager's own
    alpha: float | None = None
    # weight of the team score under convex; None: the manager's own
    lam: float | None = None
    # further arguments of the reward manager
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class AlgorithmConfig:
    """How rewards become advantages. Other keys of `algorithm` (gamma, use_kl_in_reward, ...) are verl's."""

    # name of an estimator that a plugin provides
    adv_estimator: str = "at_grpo"
    # arguments of the estimator
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ValidationConfig:
    """One greedy trajectory for each held-out task."""

    # number of held-out tasks
    tasks: int = 200
    # before the first step
    before: bool = True
    # after the last step
    after: bool = True
    # every so many steps; 0: never in between
    every: int = 0


@dataclass
class CheckpointConfig:
    """All policies as one unit."""

    # every so many steps; 0: only after the last one
    every: int = 0
    # how many to keep
    keep: int = 1


@dataclass
class DiagnosticsConfig:
    """When a run that learns nothing ends."""

    # steps in a row without any advantage other than zero after which the run ends; 0: never
    max_zero_steps: int = 10


@dataclass
class ControllerConfig:
    """How trajectories are executed."""

    # Ray actors over which the trajectories of a step are spread
    workers: int = 1
    # trajectories (joint sampling: groups) in execution at once, in each worker
    concurrency: int = 256
    # seconds that one call of an environment may take
    env_timeout_s: float = 60.0
    # attempts after a failed one
    retries: int = 1
    # share of failed trajectories above which the run ends
    max_failure_rate: float = 0.05


@dataclass
class RayConfig:
    """The Ray cluster."""

    # address of a running cluster; None: start one on this machine, for this run alone
    address: str | None = None
    # logical CPUs of the cluster that is started; None: as many as the run needs, and at least the machine's
    num_cpus: int | None = None
    # logical devices of the cluster that is started; None: on CPU as many as the policies ask for, on GPU those found
    num_gpus: int | None = None
    # seconds after which start-up is given up
    startup_timeout_s: float = 600.0


@dataclass
class RunConfig:
    """One run."""

    # name of a recipe, or path of a .yaml file
    recipe: str = MISSING
    # folder of everything that the run writes; None: runs/<recipe>-<UTC time>
    run_dir: str | None = None
    # the one seed from which all others derive
    seed: int = 0
    # request seeds and fixed batching, so that two runs give the same numbers; slower
    deterministic: bool = False
    # check the whole configuration, load no model, train nothing
    dry_run: bool = False
    # cpu, gpu, or auto: gpu if the machine has one
    hardware: str = "auto"
    # auto: continue from the last complete checkpoint in run_dir, if there is one; disable: start anew; or the
    # folder of a checkpoint of another run, to continue from it in a new run_dir
    resume: str = "disable"
    # training steps
    steps: int = 150
    # tasks drawn in each step
    tasks_per_step: int = 128
    workflow: WorkflowConfig = field(default_factory=WorkflowConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    # by the workflow's role names
    roles: dict[str, RoleConfig] = field(default_factory=dict)
    # by names of your choice
    policies: dict[str, PolicyConfig] = field(default_factory=dict)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    ray: RayConfig = field(default_factory=RayConfig)
