"""What can go wrong with a coach, by who has to act on it."""


class CoachError(RuntimeError):
    """The run cannot go on with this coach. Ends the run."""


class CoachUnavailable(CoachError):
    """The coach refuses the run's requests, or leaves too many actions without a score."""


class BudgetExceeded(CoachError):
    """The run has used up its calls or tokens."""


class NoReply(Exception):
    """One question got no usable reply, after its retries. The action may stay without a score."""
