"""Makes tools of functions, pydantic models and JSON schemas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cacheaudit.agent.tools.docstrings import describe
from cacheaudit.agent.tools.tool import Tool
from cacheaudit.errors import ToolError

Run = Callable[..., Any]


def make_tool(
    item: Any,
    run: Run | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    pinned: bool = False,
    timeout: float | None = None,
    tags: Sequence[str] = (),
) -> Tool:
    """Make a tool.

    Args:
        item: A function with type hints and a docstring; a pydantic model, whose instance ``run``
            gets; a definition with ``name``, ``description`` and ``input_schema``, whose arguments
            ``run`` gets as one mapping; or a ``Tool``, which is returned as it is.
        run: What to call, for models and definitions.
        name: Instead of its own.
        description: Instead of its own.
        pinned: Declare it by itself in every exposure.
        timeout: Seconds after which a call is given up.
        tags: Words by which it is found too.

    Raises:
        ToolError: It is none of these, or lacks what it needs.
    """
    if isinstance(item, Tool):
        return item
    if isinstance(item, Mapping):
        made = _of_schema(item, run)
    elif inspect.isclass(item):
        made = _of_model(item, run)
    elif callable(item):
        made = _of_function(item)
    else:
        raise ToolError(
            f"{type(item).__name__} is no tool.",
            "Give a function, a pydantic model or a definition with an input_schema.",
        )
    own_name, own_description, schema, call = made
    return Tool(
        name=name or own_name,
        description=description if description is not None else own_description,
        input_schema=schema,
        run=call,
        pinned=pinned,
        timeout=timeout,
        tags=tuple(tags),
        generated=not isinstance(item, Mapping),
    )


_Made = tuple[str, str, dict[str, Any], Callable[[dict[str, Any]], Any]]


def _of_function(function: Run) -> _Made:
    import pydantic

    name = getattr(function, "__name__", type(function).__name__)
    for parameter in _signature(function, name).parameters.values():
        if parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise ToolError(
                f"{name!r} takes {parameter.name!r} in a way that cannot be named in a schema.",
                "Use ordinary or keyword-only parameters.",
            )
    description, arguments = describe(function)
    try:
        checked: Any = pydantic.validate_call(function)
        schema = pydantic.TypeAdapter[Any](checked).json_schema()
    except (pydantic.errors.PydanticUserError, NameError, KeyError) as error:
        raise ToolError(
            f"No schema can be made of {name!r}: {str(error).splitlines()[0]}",
            "Give each parameter a type that JSON can carry.",
        ) from error
    for argument, text in arguments.items():
        field = schema.get("properties", {}).get(argument)
        if isinstance(field, dict) and text:
            field.setdefault("description", text)
    return name, description, schema, _by_name(checked, function)


def _signature(function: Run, name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ToolError(f"{name!r} does not tell its parameters.") from error


def _by_name(checked: Run, function: Run) -> Callable[[dict[str, Any]], Any]:
    """Call with named arguments; stays a coroutine function where the function is one."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have a coroutine here
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):

        async def run_async(arguments: dict[str, Any]) -> Any:
            return await checked(**arguments)

        return run_async

    def run(arguments: dict[str, Any]) -> Any:
        return checked(**arguments)

    return run


def _of_model(model: type, run: Run | None) -> _Made:
    import pydantic

    if not issubclass(model, pydantic.BaseModel):
        raise ToolError(
            f"{model.__name__} is a class, but no pydantic model.",
            "Give a function, a pydantic model or a definition with an input_schema.",
        )
    if run is None:
        raise ToolError(f"The model {model.__name__} does not say what to run.", "Give run=…")
    schema = model.model_json_schema()
    description = inspect.cleandoc(model.__doc__) if model.__doc__ else ""
    schema.pop("description", None)
    target = run
    if inspect.iscoroutinefunction(run):

        async def call_async(arguments: dict[str, Any]) -> Any:
            return await target(model.model_validate(arguments))

        return model.__name__, description, schema, call_async

    def call(arguments: dict[str, Any]) -> Any:
        return target(model.model_validate(arguments))

    return model.__name__, description, schema, call


def _of_schema(definition: Mapping[str, Any], run: Run | None) -> _Made:
    name = definition.get("name")
    schema = definition.get("input_schema", definition.get("inputSchema"))
    if not isinstance(name, str) or not isinstance(schema, Mapping):
        raise ToolError(
            "A definition lacks its name or its input_schema.",
            'Give {"name": …, "description": …, "input_schema": {"type": "object", …}}.',
        )
    if run is None:
        raise ToolError(f"The definition {name!r} does not say what to run.", "Give run=…")
    return name, str(definition.get("description") or ""), dict(schema), run


def in_fixed_order(schema: Any) -> Any:
    """Return a schema with its keys and its lists of required names in order.

    For schemas that come over the wire: what a server lists twice must be the same bytes twice.
    """
    if isinstance(schema, Mapping):
        return {
            key: sorted(schema[key]) if _is_names(key, schema[key]) else in_fixed_order(schema[key])
            for key in sorted(schema)
        }
    if isinstance(schema, list):
        return [in_fixed_order(item) for item in schema]
    return schema


def _is_names(key: str, value: Any) -> bool:
    return (
        key == "required"
        and isinstance(value, list)
        and all(isinstance(name, str) for name in value)
    )
