"""Requests to GitHub's REST API: repeated where that helps, and each failure is one sentence.

ghreq (MIT) follows pages, leaves a pause between changes, and repeats requests with growing pauses where GitHub answers
5xx, or 403 for a rate limit. Only this module imports it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from perfguard import __version__
from perfguard.errors import PerfguardError, UsageError

if TYPE_CHECKING:
    import ghreq
    import requests

_API_VERSION = "2022-11-28"
"""Also what GitHub Enterprise Server knows; a version that a server does not know is refused."""
_TIMEOUT_S = 60.0
_LONGEST_WAIT_S = 300.0
_LIMIT_WAIT_S = 60.0  # GitHub asks for a minute where it names no time

T = TypeVar("T")


class GitHubError(PerfguardError):
    """GitHub could not be asked, or refused."""


class NotPermittedError(GitHubError):
    """The token may not do that: a fork's token, or a job without the permission."""


class NotFoundError(NotPermittedError):
    """There is no such thing, or the token may not even know of it: GitHub answers the same."""


class Connection:
    """A session with one GitHub; whatever fails is a GitHubError."""

    def __init__(self, *, token: str | None, url: str, wait_s: float) -> None:
        """Ask nothing yet; without a token, as anybody, else as the job or the app that it is of.

        An Enterprise Server has its API at `https://github.example.com/api/v3`. `wait_s` is the pause between changes,
        and the unit of the growing pauses between repeated requests.

        Raises:
            UsageError: ghreq is missing.
        """
        try:
            import ghreq
        except ImportError:
            raise UsageError("talking to GitHub needs ghreq: pip install 'perfguard[github]'") from None
        logging.getLogger("ghreq").setLevel(logging.ERROR)
        self._client = ghreq.Client(
            token=token,
            api_url=url,
            api_version=_API_VERSION,
            user_agent=f"perfguard/{__version__}",
            mutation_delay=wait_s,
            retry_config=ghreq.RetryConfig(
                retries=6, backoff_factor=wait_s, backoff_base=2.0, total_wait=_LONGEST_WAIT_S
            ),
        )
        self._wait_s = wait_s

    def close(self) -> None:
        """Leave the connection."""
        self._client.close()

    def ask(self, method: str, path: str, decode: Callable[[Any], T], body: Mapping[str, Any] | None = None) -> T:
        """Read or change something; gives GitHub's answer through `decode`, whose errors are a misfit of the answer.

        A request whose connection broke is repeated, so what it makes may be there twice.
        """
        with _explained(path):
            return decode(self._sent(method, path, json=body))

    def each(self, path: str, query: Mapping[str, Any], decode: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        """The items of all pages, through `decode`; no page is fetched before its items are wanted."""
        url: str | None = path
        parameters: Mapping[str, Any] | None = {**query, "per_page": 100}
        while url is not None:
            with _explained(path):
                page = self._sent("GET", url, params=parameters, raw=True)
                items = [decode(item) for item in _items(page.json())]
                url, parameters = self._next(page), None
            yield from items

    def stream(self, path: str, what: str, chunk_bytes: int) -> Iterator[bytes]:
        """The file `what` in pieces. Where GitHub sends on to another host, the token stays behind."""
        with _explained(what), self._sent("GET", path, stream=True) as response:
            yield from response.iter_content(chunk_bytes)

    def _sent(self, method: str, path: str, **given: Any) -> Any:
        """Send a request, and again when a 429 says so; ghreq knows rate limits as 403 alone."""
        import ghreq

        deadline = time.monotonic() + _LONGEST_WAIT_S
        while True:
            try:
                return self._client.request(method, path, timeout=_TIMEOUT_S, **given)
            except ghreq.PrettyHTTPError as error:
                pause_s = self._limit_s(error.response)
                if error.response.status_code != 429 or time.monotonic() + pause_s > deadline:
                    raise
                time.sleep(pause_s)

    def _next(self, page: requests.Response) -> str | None:
        """Address of the next page; the token goes nowhere else than it was made for."""
        url = page.links.get("next", {}).get("url")
        if url is not None and not url.startswith(self._client.api_url.rstrip("/") + "/"):
            raise ValueError(f"the next page is at {url:.80}")
        return url

    def _limit_s(self, response: requests.Response) -> float:
        """How long GitHub wants to be left alone, seconds."""
        retry_after = response.headers.get("Retry-After", "")
        if retry_after.isdigit():
            return float(retry_after)
        reset = response.headers.get("X-RateLimit-Reset", "")
        if response.headers.get("X-RateLimit-Remaining") == "0" and reset.isdigit():
            return max(0.0, float(reset) - time.time())
        return _LIMIT_WAIT_S * self._wait_s


def _items(page: Any) -> list[Any]:
    """The items of a page: a list, or an object with one list beside counts."""
    if isinstance(page, list):
        return page
    (items,) = (value for value in page.values() if isinstance(value, list))
    return items


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn the library's errors into one sentence each."""
    import ghreq
    import requests

    try:
        yield
    except ghreq.PrettyHTTPError as error:
        raise _refusal(error, what) from error
    except (requests.RequestException, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, requests.RequestException) and not isinstance(error, requests.JSONDecodeError):
            raise GitHubError(f"GitHub could not be reached for {what}: {str(error)[:300]}") from error
        said = repr(error)[:200]  # of a page of HTML, or of JSON of another shape
        raise GitHubError(f"the answer about {what} is not GitHub's ({said}); is GITHUB_API_URL right?") from error


def _refusal(error: ghreq.PrettyHTTPError, what: str) -> GitHubError:
    status, said = error.response.status_code, _message(error.response)
    if "rate limit" in said.lower() or status == 429:
        return GitHubError(f"GitHub's rate limit holds {what} back ({said}); run this again later")
    if status == 404:
        return NotFoundError(f"GitHub finds no {what}, or this token may not see it: {said}")
    if status in (401, 403):
        return NotPermittedError(f"GitHub refused {what} with {status}: {said}")
    return GitHubError(f"GitHub answered {status} for {what}: {said}")


def _message(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return "no message"
