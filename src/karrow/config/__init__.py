"""Options of clients, by role: what they mean, their limits, and where they can come from.

>>> from karrow import config
>>> base = config.ClientConfig(request_timeout=5.0)
>>> config.replace(base, client_id="billing").request_timeout
5.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from karrow.config import sasl
from karrow.config.bootstrap import Address, Servers, is_address
from karrow.config.client import ClientConfig
from karrow.config.consumer import ConsumerConfig
from karrow.config.fetch import FetchConfig
from karrow.config.option import Option, Options
from karrow.config.producer import ProducerConfig
from karrow.config.properties import from_file, from_properties
from karrow.config.sasl import Mechanism, MskIam, OAuthBearer, Plain, Scram, Token
from karrow.config.secret import Secret
from karrow.config.tls import TLS
from karrow.config.workers import WorkerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TLS",
    "Address",
    "ClientConfig",
    "ConsumerConfig",
    "FetchConfig",
    "Mechanism",
    "MskIam",
    "OAuthBearer",
    "Option",
    "Options",
    "Plain",
    "ProducerConfig",
    "Scram",
    "Secret",
    "Servers",
    "Token",
    "WorkerConfig",
    "from_env",
    "from_file",
    "from_properties",
    "is_address",
    "replace",
    "sasl",
]

_OptionsT = TypeVar("_OptionsT", bound=Options)
_ConfigT = TypeVar("_ConfigT", bound=ClientConfig)


def replace(config: _OptionsT, **options: Any) -> _OptionsT:
    """A copy of an option set with other values; an unknown name is refused."""
    return config.replace(**options)


@overload
def from_env(
    environ: Mapping[str, str] | None = None, *, into: type[_ConfigT], **options: Any
) -> _ConfigT: ...
@overload
def from_env(environ: Mapping[str, str] | None = None, **options: Any) -> ClientConfig: ...
def from_env(
    environ: Mapping[str, str] | None = None,
    *,
    into: type[ClientConfig] = ClientConfig,
    **options: Any,
) -> ClientConfig:
    """A set of options from the environment; arguments go before it.

    Every plain option has a variable (KARROW_BOOTSTRAP, KARROW_REQUEST_TIMEOUT, ...);
    ``sasl.from_env`` and ``TLS.from_env`` say what they read.
    """
    security = {"sasl": sasl.from_env(environ), "tls": TLS.from_env(environ)}
    given = {name: value for name, value in security.items() if value is not None}
    return into.from_env(environ, **{**given, **options})
