"""Documents and entries of an extension's own, for those who import `perdure.extensions` alone."""

from perdure.models.messages import UserMessage
from perdure.session.documents import Document, document_family
from perdure.session.entries import entry

__all__ = ["Document", "UserMessage", "document_family", "entry"]
