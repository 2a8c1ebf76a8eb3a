"""An orchestrator that is killed before a commit of its own: `PERDURE_TEST_DIES` is the number of that commit."""

import asyncio
import os
import sys

from perdure.subagents.orchestrator import main
from tests.subagents.mortal import VARIABLE, die_before

if __name__ == "__main__":
    die_before(int(os.environ.pop(VARIABLE)))
    sys.exit(asyncio.run(main()))
