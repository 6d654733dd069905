"""A secret that everybody needs who asks, when others than this machine's own user can reach the server."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.requests import cookie_parser

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Token"]


class Token:
    """Knows whether somebody has the token.

    Args:
        secret: the token itself.

    Example:
        >>> token = Token("correct horse battery")
        >>> token.is_in({"authorization": "Bearer correct horse battery"}), token.is_in({})
        (True, False)
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # a browser sends a cookie to all ports of a host: neither the name nor the value tells the token to another
        self._value = hmac.new(self._secret, b"cookie", hashlib.sha256).hexdigest()
        self._name = "excite-" + hashlib.sha256(self._value.encode()).hexdigest()[:12]

    def is_in(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers has the token, as a program sends it or as a cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is(given.strip()):
            return True
        cookies = cookie_parser(headers.get("cookie", ""))  # whatever other servers of the host have put there
        kept = cookies.get(self._name, "")
        return hmac.compare_digest(kept.encode("utf-8", "replace"), self._value.encode())

    def without(self, query: str) -> str | None:
        """The query without the token, if it has it.

        Example:
            >>> Token("correct horse battery").without("model=words&token=correct+horse+battery")
            'model=words'
        """
        pairs = parse_qsl(query, keep_blank_values=True)
        if not any(name == "token" and self._is(given) for name, given in pairs):
            return None
        return urlencode([(name, value) for name, value in pairs if name != "token"])

    @property
    def cookie(self) -> str:
        """What a browser is told to keep until it is closed."""
        return f"{self._name}={self._value}; Path=/; HttpOnly; SameSite=Strict"

    def _is(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._secret)
