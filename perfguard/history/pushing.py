"""Sending runs to `perfguard serve`."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request

from perfguard.errors import DatabaseError, UsageError
from perfguard.history.run_records import stored_json
from perfguard.records.history import MeasuredRun

_WAITS_S = 60.0
_LONGEST = 300  # Characters of what a server said


def push_run(url: str, token: str, run: MeasuredRun) -> bool:
    """Send a run; whether it was new there.

    Raises:
        UsageError: The address is none of HTTP, or the server refuses the run or the token.
        DatabaseError: The server cannot be reached, or fails.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--to {url}: write the address of the server, such as https://perf.example.org")
    request = urllib.request.Request(  # noqa: S310 - its scheme is checked above
        f"{url.rstrip('/')}/api/runs",
        data=stored_json(run).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_WAITS_S) as answer:  # noqa: S310
            return bool(json.loads(answer.read())["is_new"])
    except urllib.error.HTTPError as error:
        said = _said_by(error)
        if error.code >= 500 or error.code == 429:
            raise DatabaseError(f"{url} fails: {said}") from error
        raise UsageError(f"{url} refuses the run: {said}") from error
    except OSError as error:
        raise DatabaseError(f"{url} cannot be reached: {_why(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DatabaseError(f"{url} answers, but not as `perfguard serve` does; is the address right?") from error


def _why(error: OSError) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message}); SSL_CERT_FILE names the authorities"
    if isinstance(reason, ssl.SSLError):
        return "it does not speak TLS; is it http:// instead of https://?"
    if isinstance(reason, TimeoutError):
        return f"no answer within {_WAITS_S:.0f} s"
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason)


def _said_by(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["detail"])[:_LONGEST]
    except (OSError, ValueError, KeyError, TypeError):
        return f"status {error.code}"
