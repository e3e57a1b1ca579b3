"""Divide documents in two by a hash of their text, so that the division needs no list of them."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class HashedShare:
    """One side of a division of documents by a hash of their text; equal documents are on the same side."""

    share: float  # of the documents that are held out
    held_out: bool  # whether this is the side of these

    def __call__(self, document: list[str]) -> bool:
        """Return whether a document is on this side."""
        digest = hashlib.blake2b("\n".join(document).encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") < self.share * 2**64) == self.held_out

    @property
    def without_documents(self) -> str:
        """The error message where no document is on this side."""
        if self.held_out:
            return f"a held-out share of {self.share:g} takes none of the documents; hold out more, or give more text"
        return f"a held-out share of {self.share:g} leaves no document; hold out less, or give more text"
