"""`python -m perdure.subagents.host`, started by the orchestrator: see `process`."""

import asyncio
import sys

from perdure.subagents.host.process import main

if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
