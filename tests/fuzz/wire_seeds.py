"""Valid streams for the framing fuzzers to start from."""

from __future__ import annotations

import random

from filling import fill
from wire_targets import ASKED

from karrow.wire import ClientFraming, Request, ServerFraming
from karrow.wire.table import schema


def request_stream(seed: int = 1) -> bytes:
    """What a client sends."""
    rng = random.Random(seed)
    framing = ClientFraming("fuzz")
    stream = b""
    for name, version, _ in ASKED:
        body = fill(rng, schema(f"{name}Request"), version, "full")
        stream += b"".join(framing.send(name, version, body)[1])
    return stream


def answer_stream(seed: int = 1) -> bytes:
    """What a server answers, in the order of the requests in ASKED."""
    rng = random.Random(seed)
    client, server = ClientFraming("fuzz"), ServerFraming()
    stream = b""
    for name, version, body in ASKED:
        for frame in server.frames.feed(b"".join(client.send(name, version, body)[1])):
            request = server.receive(frame)
            assert isinstance(request, Request)
            answer = fill(rng, schema(f"{name}Response"), version, "full")
            stream += b"".join(server.respond(request, answer))
    return stream
