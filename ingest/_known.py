"""Which facts are surely new, known in memory, so that the door seldom asks the store."""

import threading
from collections.abc import Iterable
from typing import NamedTuple

import mmh3
import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
"""Shape (n, 2): the halves of `murmurHash3_128(concat(source, char(0), id))`."""

_BITS_PER_FACT = 16
_PROBES = 8
"""One new fact in two thousand is taken for a known one, and then the store is asked."""
_SMALLEST = 1 << 20
_CHUNK = 1 << 16


class FactId(NamedTuple):
    source: str
    id: str


class Known:
    """A Bloom filter (B. H. Bloom, CACM 13, 1970) of facts; two bytes each. Threads may share it."""

    def __init__(self, expected: int = 0) -> None:
        """Room for at least twice what is expected, before false alarms become more frequent."""
        bits = max(_SMALLEST, expected * 2) * _BITS_PER_FACT
        self._mask = (1 << (bits - 1).bit_length()) - 1
        self._bytes = bytearray((self._mask + 1) // 8)
        self._adding = threading.Lock()
        self.capacity = (self._mask + 1) // _BITS_PER_FACT
        self.count = 0
        self.complete = False
        """Set it when all facts are in; before that, any may be."""

    def add(self, facts: Iterable[FactId]) -> None:
        mask, bits = self._mask, self._bytes
        with self._adding:
            for fact in facts:
                self.count += 1
                place, step = _hash(fact)
                for _ in range(_PROBES):
                    bits[(place & mask) >> 3] |= 1 << (place & 7)
                    place += step

    def add_hashes(self, hashes: Hashes) -> None:
        """As `add`, for facts whose hashes the store computed."""
        view = np.frombuffer(self._bytes, dtype=np.uint8)
        for start in range(0, len(hashes), _CHUNK):
            first, second = hashes[start : start + _CHUNK].T
            with self._adding:
                for probe in range(_PROBES):
                    places = (first + np.uint64(probe) * second) & np.uint64(self._mask)
                    bits = np.left_shift(1, places & np.uint64(7)).astype(np.uint8)
                    np.bitwise_or.at(view, places >> np.uint64(3), bits)
        self.count += len(hashes)

    def may_have(self, fact: FactId) -> bool:
        """False: it is complete, and the fact was never added."""
        if not self.complete:
            return True
        mask, bits = self._mask, self._bytes
        place, step = _hash(fact)
        for _ in range(_PROBES):
            if not bits[(place & mask) >> 3] & 1 << (place & 7):
                return False
            place += step
        return True


def _hash(fact: FactId) -> tuple[int, int]:
    return mmh3.hash64(f"{fact.source}\0{fact.id}", signed=False)
