"""Access tokens: random, kept as a hash, for one purpose and, if wanted, one project; revocable."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import TYPE_CHECKING, Any

from perfguard.errors import NothingSelectedError
from perfguard.history.database import Database
from perfguard.records.history import Token, TokenScope

if TYPE_CHECKING:
    from sqlalchemy import Row

_PREFIX = "pg_"


def create_token(database: Database, name: str, scope: TokenScope, *, project: str | None = None) -> str:
    """A new token; its text, which is shown once."""
    from perfguard.history.tables import access_tokens

    text = _PREFIX + secrets.token_urlsafe(32)
    row = {"name": name, "scope": scope.value, "project": project, "digest": _digest(text), "created_at": time.time()}
    with database.writing() as connection:
        connection.execute(access_tokens.insert().values(**row))
    return text


def read_tokens(database: Database) -> tuple[Token, ...]:
    """All tokens, revoked ones too."""
    from sqlalchemy import select

    from perfguard.history.tables import access_tokens

    with database.reading() as connection:
        rows = connection.execute(select(access_tokens).order_by(access_tokens.c.id)).all()
    return tuple(map(_token, rows))


def revoke_token(database: Database, token_id: int) -> None:
    """Raises NothingSelectedError: there is no such token that is valid."""
    from perfguard.history.tables import access_tokens as tokens

    change = tokens.update().where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
    with database.writing() as connection:
        if not connection.execute(change.values(revoked_at=time.time())).rowcount:
            raise NothingSelectedError(f"there is no valid token {token_id}; `perfguard db token list` shows all")


def find_token(database: Database, text: str) -> Token | None:
    """The valid token with this text.

    It is looked up by its hash, so the time that this takes says nothing of the text.
    """
    from sqlalchemy import select

    from perfguard.history.tables import access_tokens as tokens

    wanted = select(tokens).where(tokens.c.digest == _digest(text), tokens.c.revoked_at.is_(None))
    with database.reading() as connection:
        row = connection.execute(wanted).one_or_none()
    return None if row is None else _token(row)


def _token(row: Row[Any]) -> Token:
    return Token(
        id=row.id,
        name=row.name,
        scope=TokenScope(row.scope),
        project=row.project,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
    )


def _digest(text: str) -> str:
    """32 random bytes need no slow hash: nobody can try them all."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
