"""The public suite for stores. Whoever writes a store runs it with three lines:

    class TestMyStorage(StorageConformance):
        def make_storage(self, folder: Path) -> Storage:
            return MyStorage(folder / "session")

`make_storage` gives a closed store; called with the same folder it gives the same store. With `reopen = True` in the
class every test runs with the store closed and opened anew after each commit. Needs pytest and pytest-asyncio.
"""

import pytest

from perdure.testing.reopening import ReopeningStorage
from perdure.testing.storage_commit_cases import AtomicityCases, ContentCases, OpenCases
from perdure.testing.storage_document_cases import DocumentCases
from perdure.testing.storage_family_cases import FamilyCases
from perdure.testing.storage_scan_cases import EntryCases, TaskCases
from perdure.testing.storage_suite import Script, created, updated

__all__ = ["ReopeningStorage", "Script", "StorageConformance", "created", "updated"]


@pytest.mark.asyncio
class StorageConformance(OpenCases, AtomicityCases, ContentCases, EntryCases, TaskCases, DocumentCases, FamilyCases):
    """Everything that the storage protocol promises. Subclass it and write `make_storage`."""
