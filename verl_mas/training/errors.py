"""What a person is told of an error; the traceback is in the run's log."""

from ray.exceptions import RayTaskError


def describe_error(error: BaseException) -> str:
    """The kind of an error and the first line of what it says, and below it those of what caused it.

    Of an error that Ray brought from another process, those of the error there: Ray's own text is a whole traceback.
    """
    if isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        return describe_error(error.cause)
    says = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {says[0] if says else 'no message'}"
    return text if error.__cause__ is None else f"{text}\n  because of {describe_error(error.__cause__)}"
