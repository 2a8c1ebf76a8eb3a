"""The coding tools: read, write, edit, bash. They touch files and processes only through `ctx.env`."""

from perdure.extensions.extension import Extension
from perdure.tools.bash import bash
from perdure.tools.edit import edit
from perdure.tools.read import read
from perdure.tools.write import write

coding_tools = Extension("coding")
coding_tools.add(read, write, edit, bash)
