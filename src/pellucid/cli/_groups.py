"""Groups of options: a command names a group once, and every option of it appears on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

Parameter = inspect.Parameter


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer sees it: a parameter whose type is a dataclass becomes the options of its fields.

    Options keep the order of parameters and fields, and the command gets the dataclass made from them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            kind = Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(kind=kind, annotation=hints[parameter.name]))
            continue
        told = get_type_hints(group, include_extras=True)
        parameters += [_option(each, told[each.name]) for each in fields(group)]
    if len({parameter.name for parameter in parameters}) < len(parameters):
        raise AssertionError(f"two options of {command.__name__} have the same name")

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        command(**given, **made)

    signature: Any = inspect.Signature(parameters)
    called.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del called.__wrapped__  # pyright: ignore[reportAttributeAccessIssue]  # Typer would look through to the command
    return called


def _option(each: Field[Any], hint: Any) -> Parameter:
    default = Parameter.empty if each.default is MISSING else each.default
    return Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
