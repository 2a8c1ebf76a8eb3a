"""`perdure`: finds the command, imports only that one, turns errors into words and exit codes."""

import io
import sys
from typing import Any, Final

import click

from perdure.cli.failure import EXIT_CODES, printing, report_failure
from perdure.cli.group import LazyGroup

COMMANDS: Final = {
    "tour": ("perdure.cli.tour", "An agent is killed at work and carries on: offline, no key, under 20 s."),
    "ask": ("perdure.cli.ask", "Give the agent one input and print its answer."),
    "resume": ("perdure.cli.resume", "Go on with a session that was interrupted."),
    "sessions": ("perdure.cli.sessions", "List the sessions of this machine."),
    "inspect": ("perdure.cli.inspect", "Show what a session does, waits for, and holds."),
    "log": ("perdure.cli.log", "Print a conversation's transcript."),
    "tasks": ("perdure.cli.tasks", "Show what runs, what waits for what, and until when."),
    "answer": ("perdure.cli.answer", "Answer a question that the agent asks; without one, list them."),
    "signal": ("perdure.cli.signal", "Deliver a value to a task that waits for it."),
    "usage": ("perdure.cli.usage", "Show tokens and cost of a session."),
    "compact": ("perdure.cli.compact", "Have a conversation's older messages summarized."),
    "repair": ("perdure.cli.repair", "Save what stands before the damage in a session's file of lines."),
    "agents": ("perdure.cli.agents", "Workflows of subagents: run, send, status, stop and more."),
    "abort": ("perdure.cli.abort", "Stop a conversation's current work, also in another process."),
}


class Program(LazyGroup):
    """All of it. What cannot be printed is told apart from other errors before click makes up its mind about it."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with printing():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with printing():
            return super().invoke(ctx)


@click.group(
    cls=Program,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
)
@click.version_option(package_name="perdure")
def cli() -> None:
    """Durable agents: they survive their process dying and do nothing twice.

    \b
    perdure tour                             see it, offline
    perdure ask "Explain this repository"    one question, one answer
    perdure ask --session fix "Fix the test" in a session you can come back to
    perdure log fix                          what was said and done
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal does not know stops nothing
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        result: Any = cli.main(args=arguments, prog_name="perdure", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return 2
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except Exception as error:
        return report_failure(error)
    return result if isinstance(result, int) else 0
