"""Ask a Ray cluster once whether it accepts the authentication token; runs as a process of its own.

`ray.init` repeats a rejected connection for 20 seconds and prints a warning each time, below Python's logging. Here the
output goes nowhere. Any other problem, and a Ray without this interface, is left to `ray.init`.
"""

from __future__ import annotations

import subprocess
import sys

__all__ = ["is_authentication_error", "is_token_rejected"]

_REJECTED = 3
"""Exit code for a rejected token."""

_TIMEOUT_S = 8.0


def is_token_rejected(address: str) -> bool:
    """Return whether the cluster at the address rejects the token of this process, or the lack of one."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__, address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == _REJECTED


def is_authentication_error(error: BaseException | None) -> bool:
    """Return whether Ray refused the token: it reports that as the error or as the cause of a failed connection."""
    while error is not None:
        if type(error).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _connect(address: str) -> None:
    """Connect as `ray.init` does: only `auto` uses the token of the home folder without RAY_AUTH_MODE."""
    from ray._private import services
    from ray._raylet import GcsClient

    if address == "auto":
        from ray._private.authentication import authentication_token_setup

        authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    GcsClient(address=services.canonicalize_bootstrap_address_or_die(address))


if __name__ == "__main__":
    try:
        _connect(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - other errors are reported by `ray.init`
        sys.exit(_REJECTED if is_authentication_error(error) else 0)
