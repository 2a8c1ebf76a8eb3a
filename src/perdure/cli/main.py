"""`perdure`: finds the command, imports only that one, turns errors into words and exit codes."""

import difflib
import importlib
import sys
from typing import Any, Final

import click

from perdure.cli.failure import EXIT_CODES, report_failure

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


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = COMMANDS.get(name)
        if found is None:
            return None
        command: click.Command = importlib.import_module(found[0]).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, 2)
            if not near:
                raise
            meant = " or ".join(map(repr, near))
            raise click.UsageError(f"{error.message} Did you mean {meant}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
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
    except BrokenPipeError:
        sys.stdout = None  # the reader is gone: nothing is left to flush
        return 0
    except Exception as error:
        return report_failure(error)
    return result if isinstance(result, int) else 0
