"""The connections in a VM port's traffic, and the bucket of a hash that each is in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mix:
    """The number of connections of each VM port, constant over the trace.

    The k-th carries 1/k of the traffic of the first (Zipf's law with exponent 1).
    """

    flows: int = 32
    seed: int = 0

    def shares(self) -> list[float]:
        """The share of each connection in a VM port's traffic; the sum is 1."""
        weights = [1 / rank for rank in range(1, self.flows + 1)]
        return [weight / sum(weights) for weight in weights]

    def by_connection(self, host: str, port: str, buckets: int) -> dict[int, float]:
        """The share of each bucket in a VM port's traffic, for a hash of connections."""
        found: dict[int, float] = {}
        for number, share in enumerate(self.shares()):
            bucket = self._hash(host, port, str(number)) % buckets
            found[bucket] = found.get(bucket, 0.0) + share
        return found

    def by_address(self, host: str, port: str, buckets: int) -> dict[int, float]:
        """The same for a hash of source addresses. A VM port has one address."""
        return {self._hash(host, port) % buckets: 1.0}

    def _hash(self, *words: str) -> int:
        text = "\0".join((str(self.seed), *words)).encode(errors="surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
