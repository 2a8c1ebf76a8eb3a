"""Tools that ship: `coding_tools` (read, write, edit, bash) and `history_tools` (handoff, search_history). May import
extensions, env and base only."""

from perdure.tools.coding import coding_tools
from perdure.tools.history import history_tools

__all__ = ["coding_tools", "history_tools"]
