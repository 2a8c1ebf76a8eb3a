"""`perdure agents`: workflows of subagents from the command line. Finds its command, imports only that one."""

from typing import Final

import click

from perdure.cli.group import LazyGroup

COMMANDS: Final = {
    "list": ("perdure.cli.agents_run:list_", "List the agents that can be named here."),
    "run": ("perdure.cli.agents_run:run", "Start one subagent, a list, a chain, or a workflow script."),
    "send": ("perdure.cli.agents_send:send", "Steer, notify, follow up, answer, or switch the model."),
    "stop": ("perdure.cli.agents_send:stop", "Stop a call or a workflow for good."),
    "drain": ("perdure.cli.agents_send:drain", "Let what runs finish, and dispatch nothing more of what exists."),
    "stop-all": ("perdure.cli.agents_send:stop_all", "Cut off what runs; everything can go on later."),
    "resume": ("perdure.cli.agents_send:resume", "Go on with what is held or parked."),
    "status": ("perdure.cli.agents_see:status", "Show what runs, asks and failed, or one workflow."),
    "describe": ("perdure.cli.agents_see:describe", "Tell what became of a request or a workflow, whole, as JSON."),
    "events": ("perdure.cli.agents_see:events", "Print the event log after a cursor, or a workflow's timeline."),
    "tail": ("perdure.cli.agents_see:tail", "Print events as they come."),
    "start": ("perdure.cli.agents_send:start", "Start the orchestrator if something waits for it."),
    "prune": ("perdure.cli.agents_keep:prune", "Remove ended workflows and what they take on disk."),
    "restart": ("perdure.cli.agents_keep:restart", "Let another process take over, with what is installed now."),
    "doctor": ("perdure.cli.agents_keep:doctor", "Look for what needs a hand; one command for each finding."),
    "smoke": ("perdure.cli.agents_smoke:smoke", "Check that this machine can run subagents: offline, under a minute."),
    "chaos": ("perdure.cli.chaos:chaos", "Kill and break everything, and count what was lost: nine scenarios."),
}


@click.group("agents", cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Subagents that never lose work and never do it twice.

    \b
    perdure agents run --agent worker --task "Fix the flaky test"
    perdure agents status
    perdure agents send answer --message "blue"

    State lies below PERDURE_HOME. Exit codes of run, send and stop: 0 applied, 1 refused, 3 another content was
    recorded under this request id, 75 not decided yet.
    """
