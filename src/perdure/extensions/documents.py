"""Documents of an extension's own, for those who import `perdure.extensions` alone."""

from perdure.session.documents import Document, document_family

__all__ = ["Document", "document_family"]
