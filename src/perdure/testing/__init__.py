"""Public help for testing: scripted model, fake clock, conformance suites, crash explorer.

Nothing imports it but some CLI modules. The suites and the explorer are modules of their own: `storage_conformance`,
`env_conformance`, `crash`.
"""

from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel

__all__ = ["FakeClock", "ScriptedModel"]
