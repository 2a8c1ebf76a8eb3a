"""Tools that ship: `coding_tools` (read, write, edit, bash), `search_tools` (grep, find), `history_tools` (handoff,
search_history). May import extensions, env and base only."""

from perdure.tools.coding import coding_tools
from perdure.tools.history import history_tools
from perdure.tools.search import search_tools

__all__ = ["coding_tools", "history_tools", "search_tools"]
