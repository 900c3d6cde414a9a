"""Who may log in to the tests' brokers, and with what."""

from __future__ import annotations

import base64
import json
import time

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")

# The same for PLAIN and SCRAM. Admin is a super user beside everyone on the plaintext listener.
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}

LOGIN = "org.apache.kafka.common.security"


def plain_module() -> str:
    """The JAAS line of a broker that knows our users."""
    known = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    own = f'username="admin" password="{PASSWORDS["admin"]}"'
    return f"{LOGIN}.plain.PlainLoginModule required {own} {known};"


def login_modules() -> dict[str, str]:
    """The JAAS line of each mechanism."""
    scram = f"{LOGIN}.scram.ScramLoginModule required;"
    oauth = f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b"'
    return {
        "PLAIN": plain_module(),
        **dict.fromkeys(SCRAM, scram),
        "OAUTHBEARER": f"{oauth};",
    }


def unsecured_token(subject: str, lifetime: float = 3600.0) -> str:
    """An unsigned token, which the OAUTHBEARER listeners accept until it expires."""
    now = int(time.time())  # whole: rounded up, it would lie in the broker's future
    claims = {"sub": subject, "iat": now, "exp": now + lifetime}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
