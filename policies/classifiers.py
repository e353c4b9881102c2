"""Kinds of units: VM ports, and buckets to which a hash assigns frames."""

from __future__ import annotations

from enum import StrEnum

# As many as Open vSwitch's own bonds have (BOND_BUCKETS in ofproto/bond.c).
BUCKETS = 256


class Classifier(StrEnum):
    """The kind of frames that stay together on one uplink.

    `VM_PORT`: all frames of a VM port. `SOURCE_MAC`: frames with the same source address.
    `SOURCE_MAC_VLAN`: frames with the same source address and VLAN, as in Open vSwitch's
    balance-slb. `IP_PAIR`: frames between two IP addresses, as in VMware's IP hash. `TRANSPORT`:
    frames of one connection; if frames have no ports, frames between two IP addresses; if they have
    no IP addresses, frames between two MAC addresses.
    """

    VM_PORT = "vm-port"
    SOURCE_MAC = "source-mac"
    SOURCE_MAC_VLAN = "source-mac-vlan"
    IP_PAIR = "ip-pair"
    TRANSPORT = "transport"

    @property
    def hashed(self) -> bool:
        """Whether the units are buckets, which all VM ports of a team share."""
        return self is not Classifier.VM_PORT

    @property
    def by_address(self) -> bool:
        """Whether the hash keeps all frames from one address (in a VLAN) on one uplink."""
        return self in (Classifier.SOURCE_MAC, Classifier.SOURCE_MAC_VLAN)

    def buckets(self, uplinks: int) -> int:
        """Return the number of buckets for a team with this many active uplinks."""
        if not self.hashed:
            return 0
        return uplinks if self is Classifier.IP_PAIR else BUCKETS
