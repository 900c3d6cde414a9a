"""What a client may do with a resource: everything, since there are no ACLs (KIP-430)."""

from __future__ import annotations

# Nobody asked, or the version cannot tell.
UNKNOWN = -0x80000000
# The numbers of the operations that each kind of resource has, as bits.
CLUSTER_OPERATIONS = sum(1 << number for number in (5, 7, 8, 9, 10, 11, 12))
TOPIC_OPERATIONS = sum(1 << number for number in (3, 4, 5, 6, 7, 8, 10, 11))
