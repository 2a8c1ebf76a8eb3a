"""Tools that ship: `coding_tools` (read, write, edit, bash). May import extensions, env and base only."""

from perdure.tools.coding import coding_tools

__all__ = ["coding_tools"]
