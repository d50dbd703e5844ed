"""The errors of the workflow core, by who has to act on them."""


class InternalError(RuntimeError):
    """An invariant of verl_mas is broken (a group of the wrong size, say). Never retried, never counted."""


class WorkflowError(ValueError):
    """A mistake in a workflow's definition or use. Another attempt cannot mend it, so it is never retried."""


class PromptError(WorkflowError):
    """A prompt template and what the environment observes do not fit together."""


class GraphError(WorkflowError):
    """The nodes and edges of a graph workflow do not form a workflow."""


class EnvironmentTimeout(RuntimeError):
    """An environment did not answer in time. The attempt is over; the thread that hangs is left behind."""


class ControllerError(RuntimeError):
    """Too many trajectories failed. The first failure is its `__cause__`."""


class EndOfSampling(BaseException):
    """A sampling scheme ends the execution of a workflow at one of its decisions; what came before it counts.

    No error, so no `except Exception` of a workflow holds it up, like asyncio.CancelledError.
    """
