"""SHA-256, which names content. The library behind it is loaded with the first digest: starting needs none."""

from perdure.base.lazy import load


def sha256(data: bytes) -> bytes:
    """The digest of bytes, 32 bytes long; `.hex()` is how it is stored and shown."""
    digest: bytes = load("hashlib:sha256")(data).digest()
    return digest
