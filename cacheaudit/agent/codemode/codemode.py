"""The tool that runs scripts, and what it answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cacheaudit.agent.codemode.catalog import SCHEMA, description
from cacheaudit.agent.codemode.functions import Functions, NestedCall, unknown_names
from cacheaudit.agent.codemode.printed import as_text
from cacheaudit.agent.codemode.sandbox import Ran, Sandbox
from cacheaudit.agent.codemode.settings import CodeLimits
from cacheaudit.agent.codemode.stubs import checked, functions_of
from cacheaudit.agent.codemode.values import Values
from cacheaudit.agent.outputs.filter import Filtered, OutputFilter
from cacheaudit.agent.tools.loop import in_thread
from cacheaudit.agent.tools.tool import SCRIPT, Outcome, Tool, failure

if TYPE_CHECKING:
    from cacheaudit.agent.tools.directory import ToolDirectory

_FENCE: Final = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)
_LEAST: Final = 200
_BEFORE_RUNNING: Final = ("type_errors", "syntax_error")


class ScriptResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a script.

    Attributes:
        shown: What goes to the model.
        output: What the script said, and the value of its last expression.
        error: As in ``Ran``; ``None``: it came to its end.
        message: The error in words.
        calls: The calls that it made; the first 200.
        seconds: How long all took.
    """

    shown: Filtered
    output: str
    error: str | None
    message: str
    calls: tuple[NestedCall, ...]
    seconds: float


class CodeMode:
    """Runs scripts on a directory.

    Args:
        directory: Whose tools scripts may call.
        sandbox: Where they run; ``None``: the directory's own.
        limits: How far they may go.

    Attributes:
        tool: The declaration; its bytes do not change.

    Raises:
        MissingExtraError: The sandbox is not installed. There is no weaker one.
    """

    def __init__(
        self,
        directory: ToolDirectory,
        *,
        sandbox: Sandbox | None = None,
        limits: CodeLimits | None = None,
    ) -> None:
        self._limits = limits or CodeLimits()
        self._directory = directory
        self._sandbox = sandbox or directory.sandbox(self._limits)
        self._values = Values(self._limits)
        self._stored = directory.outputs.store is not None
        functions = functions_of(directory.tools())
        text = description(functions, self._limits.catalog_tokens, stored=self._stored)
        self.tool = Tool(name=SCRIPT, description=text, input_schema=SCHEMA, run=self.acall)

    def run(self, script: str) -> ScriptResult:
        """Run a script."""
        return self._directory.loop.run(self.arun(script))

    async def arun(self, script: str) -> ScriptResult:
        """Run a script; tools that are coroutines run in the loop of the caller."""
        started = time.monotonic()
        functions = Functions(
            self._directory, self._limits, self._values, asyncio.get_running_loop()
        )
        ran = await self._ran(script, functions)
        output = functions.output.whole()
        if ran.error is None and ran.value is not None:
            output += _written(ran.value)
        message = self._worded(ran, functions)
        return ScriptResult(
            shown=self._shown(output, message),
            output=output,
            error=ran.error,
            message=ran.message,
            calls=tuple(functions.record.calls),
            seconds=time.monotonic() - started,
        )

    async def acall(self, arguments: Any) -> Outcome:
        """Answer the model's call of the tool."""
        script = arguments.get("script") if isinstance(arguments, Mapping) else arguments
        if not isinstance(script, str) or not script.strip():
            problem = {"at": "/script", "problem": "it must be Python source"}
            do = "Give the script as one text."
            return failure(SCRIPT, "invalid_arguments", do, problems=[problem])
        result = await self.arun(script)
        return Outcome(
            tool=SCRIPT,
            content=result.shown.text,
            error=result.error,
            is_error=result.error is not None,
            seconds=result.seconds,
            tokens_before=result.shown.tokens_before,
            tokens_after=result.shown.tokens_after,
            handle=result.shown.handle,
        )

    async def _ran(self, script: str, functions: Functions) -> Ran:
        if len(script) > self._limits.script_chars:
            return Ran(
                error="syntax_error",
                message=f"the script is longer than {self._limits.script_chars} characters",
            )
        fenced = _FENCE.fullmatch(script)
        code = fenced[1] if fenced else script
        ran = await self._attempt(code, functions)
        if ran.error == "type_errors" and "`return` statement outside" in ran.message:
            without = _without_return(code)
            if without is not None:
                ran = await self._attempt(without, functions)
        return ran

    async def _attempt(self, code: str, functions: Functions) -> Ran:
        stubs = checked(code, functions.tools, stored=self._stored)
        callables = functions.all()
        return await in_thread(
            lambda: self._sandbox.run(code, callables, stubs, functions.output.write)
        )

    def _worded(self, ran: Ran, functions: Functions) -> str:
        """Put an error into words, with what had been done before."""
        if ran.error is None:
            return ""
        lines = [f"[{ran.error}] {ran.message}"]
        if ran.error in _BEFORE_RUNNING:
            alike = unknown_names(ran.message, functions.tools, self._directory)
            lines += [alike] if alike else []
            lines.append("Nothing was run. Correct the script and run it again.")
        elif functions.record.done:
            done = ", ".join(f"{name} {n}" for name, n in sorted(functions.record.done.items()))
            lines.append(f"Calls that had succeeded and are not undone: {done}.")
        return "\n".join(lines)

    def _shown(self, output: str, message: str) -> Filtered:
        """Cut the output to what the error leaves of the budget; the error is never cut away."""
        outputs = self._directory.outputs
        if not message:
            done = outputs.apply(output)
            return done if done.text else msgspec.structs.replace(done, text="(no output)")
        most = outputs.budget.max_tokens
        error = outputs.apply(message)
        room = most - error.tokens_after - 1
        if not output:
            return error
        budget = msgspec.structs.replace(outputs.budget, max_tokens=max(_LEAST, room))
        done = OutputFilter(budget, outputs.store, outputs.count).apply(output)
        text = f"{done.text.rstrip()}\n{error.text}"
        return msgspec.structs.replace(done, text=text, tokens_after=outputs.count(text))


def _written(value: Any) -> str:
    try:
        return as_text(value)
    except (RecursionError, ValueError) as error:
        return f"(a value that cannot be shown: {type(error).__name__})"


def _without_return(code: str) -> str | None:
    """Make the value of a last ``return`` the script's value; ``None`` where there is none."""
    lines = code.rstrip().split("\n")
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        if re.match(r"return\b", line):
            lines[index] = line.removeprefix("return").lstrip() or "None"
            return "\n".join(lines)
        if line and line[0] not in " \t)]}":
            return None
    return None
