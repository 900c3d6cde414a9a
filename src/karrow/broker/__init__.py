"""The embedded broker: Kafka's protocol on loopback, in this process. It never uses the client.

`embedded.py` has the face, `cluster.py` the state that all nodes share, `node.py` and
`connection.py` the sockets, and `handlers/` the answers, by API.
"""

from __future__ import annotations
