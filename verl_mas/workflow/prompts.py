"""Prompt templates: text with `{placeholder}` fields, filled with exactly what the environment observes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from string import Formatter

from verl_mas.config.suggest import unknown_name_error
from verl_mas.workflow.environment import TaskFamily
from verl_mas.workflow.errors import PromptError


@lru_cache(maxsize=1024)
def placeholders(template: str) -> frozenset[str]:
    """The names of the `{placeholder}` fields of `template`; `{{` and `}}` are literal braces.

    Raises:
        PromptError: an unbalanced brace, an empty field, or anything but a plain name inside one.
    """
    try:
        fields = list(Formatter().parse(template))
    except ValueError as error:
        raise PromptError(
            f"prompt template is malformed ({error}); write literal braces as '{{{{' and '}}}}'"
        ) from error
    names = set()
    for _, name, spec, conversion in fields:
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            written = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise PromptError(
                f"placeholder {{{written}}} is not a plain name; write literal braces as '{{{{' and '}}}}'"
            )
        names.add(name)
    return frozenset(names)


def render(template: str, values: Mapping[str, str], role: str) -> str:
    """`template` with every placeholder replaced by its value, in one pass (braces inside values stay as they are).

    Raises:
        PromptError: a placeholder without a value, or a value without a placeholder; it names the nearest one.
    """
    names = placeholders(template)
    if missing := sorted(names - values.keys()):
        error = unknown_name_error("placeholder", missing[0], values)
        raise PromptError(f"prompt of role '{role}' asks for what the environment does not observe: {error}")
    if unused := sorted(values.keys() - names):
        error = unknown_name_error("placeholder", unused[0], names)
        raise PromptError(f"prompt of role '{role}' does not use what the environment observes: {error}")
    return template.format_map(values)


def check_prompts(
    roles: Sequence[str], family: TaskFamily, overrides: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The template of every role, after rendering each once for the first training task.

    Args:
        roles: the workflow's roles.
        family: gives the templates (it may have more than the workflow uses) and the observations.
        overrides: templates that replace the family's, by role.

    Raises:
        UnknownNameError: an override for a role that the workflow does not have.
        PromptError: a role without a template; and see `render`.
    """
    overrides = overrides or {}
    for name in overrides:
        if name not in roles:
            raise unknown_name_error("role", name, roles)
    templates = {**family.prompts, **overrides}
    env = family.environment(family.task("train", 0))
    for role in roles:
        if role not in templates:
            raise PromptError(f"role '{role}' has no prompt template: {unknown_name_error('role', role, templates)}")
        render(templates[role], env.observe(role), role)
    return {role: templates[role] for role in roles}
