"""What a VM port's traffic consists of: connections, and which bucket of a hash each is in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mix:
    """So many connections for each VM port, for as long as the trace is.

    The k-th carries 1/k of what the first one does (Zipf's law with exponent 1).
    """

    flows: int = 32
    seed: int = 0

    def shares(self) -> list[float]:
        """Of a VM port's traffic, by connection; together 1."""
        weights = [1 / rank for rank in range(1, self.flows + 1)]
        return [weight / sum(weights) for weight in weights]

    def by_connection(self, host: str, port: str, buckets: int) -> dict[int, float]:
        """The share of a VM port's traffic in each bucket of a hash of connections."""
        found: dict[int, float] = {}
        for number, share in enumerate(self.shares()):
            bucket = self._hash(host, port, str(number)) % buckets
            found[bucket] = found.get(bucket, 0.0) + share
        return found

    def by_address(self, host: str, port: str, buckets: int) -> dict[int, float]:
        """The same of a hash of source addresses, of which a VM port has one."""
        return {self._hash(host, port) % buckets: 1.0}

    def _hash(self, *words: str) -> int:
        text = "\0".join((str(self.seed), *words)).encode(errors="surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
