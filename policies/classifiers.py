"""What a unit is: the VM port itself, or what a hash of its frames makes of them."""

from __future__ import annotations

from enum import StrEnum

# As many as Open vSwitch's own bonds have (BOND_BUCKETS in ofproto/bond.c).
BUCKETS = 256


class Classifier(StrEnum):
    """Which frames stay together.

    `VM_PORT`: all of a VM port. `SOURCE_MAC`: those with one source address, and with
    `SOURCE_MAC_VLAN` in one VLAN, as Open vSwitch's balance-slb has it. `IP_PAIR`:
    those between two IP addresses, VMware's way. `TRANSPORT`: those of one connection; where
    there are no ports to look at, between two IP addresses; without those, between two MAC
    addresses.
    """

    VM_PORT = "vm-port"
    SOURCE_MAC = "source-mac"
    SOURCE_MAC_VLAN = "source-mac-vlan"
    IP_PAIR = "ip-pair"
    TRANSPORT = "transport"

    @property
    def hashed(self) -> bool:
        """Whether its units are buckets, which the VM ports of a team share."""
        return self is not Classifier.VM_PORT

    @property
    def by_address(self) -> bool:
        """Whether switches upstream see all of an address (in a VLAN) by one uplink."""
        return self in (Classifier.SOURCE_MAC, Classifier.SOURCE_MAC_VLAN)

    def buckets(self, uplinks: int) -> int:
        """How many buckets there are for a team of that many active uplinks."""
        if not self.hashed:
            return 0
        return uplinks if self is Classifier.IP_PAIR else BUCKETS
