"""Before any route is looked for: a key for all but the probes, and no room for more connections than are kept."""

from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ostraka_gateway.auth import Keys
from ostraka_gateway.decision import to_response
from ostraka_gateway.problems import Problem
from ostraka_shared.errors import RequestError, ServingError, TooManyConnections

OPEN_PATHS = frozenset({"/health", "/livez", "/readyz"})
"""Who restarts or routes around this server must always learn how it is."""
CROWDED_RETRY_S = 1.0
"""When a connection closes, nobody knows; those that only rest are closed after a minute."""


class Gate:
    """`needs_key` says of a method and a path whether the key is checked here. Decisions check theirs themselves, in
    their dialect's form and order. `refuse` gives every other refusal its form."""

    def __init__(
        self, app: ASGIApp, keys: Keys, needs_key: Callable[[str, str], bool], refuse: Callable[[Exception], Problem]
    ) -> None:
        self._app = app
        self._keys = keys
        self._needs_key = needs_key
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                self._check(scope)
            except (RequestError, ServingError) as bad:
                await to_response(self._refuse(bad))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        state = scope["state"]
        if state.get("is_crowded"):
            raise TooManyConnections("too many connections are open: use few, and keep them", CROWDED_RETRY_S)
        if self._needs_key(scope["method"], scope["path"]):
            state["key"] = self._keys.check(Headers(scope=scope).get("authorization"))


def all_but(decision_paths: Collection[str]) -> Callable[[str, str], bool]:
    """Deny by default: a path that is not there wants a key too."""
    return lambda method, path: not (method == "POST" and path in decision_paths)


def only(*paths: str) -> Callable[[str, str], bool]:
    """As jev has it: what is not there, or not so, is said to everybody."""
    return lambda method, path: method in ("GET", "HEAD") and path in paths
