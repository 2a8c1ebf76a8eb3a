"""One decorator for each hook point. The hooks of a point are asked in the order in which a conversation selects the
extensions; what is done with their answers differs from point to point."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from perdure.extensions.tool import Tool

F = TypeVar("F", bound=Callable[..., Any])


class HookDecorators:
    """`@extension.<point>` for `async (ctx, subject)`. Except for `before_tool`, a hook that raises is reported and
    passed over. Any may be asked again after a crash: what one decides, it keeps in a memo."""

    def hook(self, point: str, *, tools: Iterable[str | Tool] | None = None) -> Callable[[F], F]:
        """Register a function at a point (see `Extension.hook`)."""
        raise NotImplementedError

    @overload
    def before_tool(self, function: F, /) -> F: ...
    @overload
    def before_tool(self, /, *, tools: Iterable[str | Tool] | None = None) -> Callable[[F], F]: ...
    def before_tool(self, function: Any = None, /, *, tools: Iterable[str | Tool] | None = None) -> Any:
        """A gate, asked before a call runs, with the `ToolCall` as earlier gates left it. May return the call with
        replaced arguments, or `Block(reason)`, which ends the asking. One that raises or answers anything else blocks
        the call."""
        define = self.hook("before_tool", tools=tools)
        return define if function is None else define(function)

    @overload
    def after_tool(self, function: F, /) -> F: ...
    @overload
    def after_tool(self, /, *, tools: Iterable[str | Tool] | None = None) -> Callable[[F], F]: ...
    def after_tool(self, function: Any = None, /, *, tools: Iterable[str | Tool] | None = None) -> Any:
        """Sees every result that a call writes, blocked, interrupted and aborted ones included, as earlier hooks left
        it; may return a replaced one."""
        define = self.hook("after_tool", tools=tools)
        return define if function is None else define(function)

    @overload
    def on_abort(self, function: F, /) -> F: ...
    @overload
    def on_abort(self, /, *, tools: Iterable[str | Tool] | None = None) -> Callable[[F], F]: ...
    def on_abort(self, function: Any = None, /, *, tools: Iterable[str | Tool] | None = None) -> Any:
        """Sees the result of a call that was stopped, before `after_tool` does; may return a replaced one."""
        define = self.hook("on_abort", tools=tools)
        return define if function is None else define(function)

    def before_request(self, function: F, /) -> F:
        """Sees the messages of a request as earlier hooks left them; may return others, for this request only."""
        return self.hook("before_request")(function)

    def after_response(self, function: F, /) -> F:
        """Observes every response, as an `AssistantMessage`."""
        return self.hook("after_response")(function)

    def on_yield(self, function: F, /) -> F:
        """Asked with a `RunAnswer` that is stored, before it stands. May return `Continue(input)`, so that the model
        goes on, or a list of tasks: the run waits for them, and the first that completes with a `Continue` sends the
        model on. The first hook that decides ends the asking; a steer that waits wins over either."""
        return self.hook("on_yield")(function)

    def after_tools(self, function: F, /) -> F:
        """Asked with a `ToolRound` when its calls have ended. May return a list of tasks: the next request waits for
        them, and the run ends if one of them completes with `Terminate()`. All hooks are asked."""
        return self.hook("after_tools")(function)

    def after_run(self, function: F, /) -> F:
        """Asked with the `RunAnswer` that is about to stand. May return a list of tasks: they begin in the commit that
        settles the run, which goes on to the next; the conversation is not idle before they end. All hooks are
        asked."""
        return self.hook("after_run")(function)

    def before_compact(self, function: F, /) -> F:
        """Asked before older messages are summarized. May return `Decline(reason)` or a `Summary(text)` of its own;
        the first hook that decides ends the asking."""
        return self.hook("before_compact")(function)
