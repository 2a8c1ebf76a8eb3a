"""Tools that ship: `coding_tools` (read, write, edit, bash), `search_tools` (grep, find), `history_tools` (handoff,
search_history), `ask_person`, the gate that `approvals` makes, with what asks people questions of your own, and those
that `subagents` makes. May import extensions, env and base only."""

from perdure.extensions.questions import PersonAnswer, PersonReply, Question, ask
from perdure.tools.coding import coding_tools
from perdure.tools.history import history_tools
from perdure.tools.people import approvals, ask_person
from perdure.tools.search import search_tools
from perdure.tools.subagent_roles import Role
from perdure.tools.subagents import subagents

__all__ = [
    "PersonAnswer",
    "PersonReply",
    "Question",
    "Role",
    "approvals",
    "ask",
    "ask_person",
    "coding_tools",
    "history_tools",
    "search_tools",
    "subagents",
]
