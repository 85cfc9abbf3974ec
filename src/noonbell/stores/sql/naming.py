"""Where a store's tables are: in a schema of their own (`store.schema`), under a prefix (`store.table_prefix`), or plainly.

Statements are written with plain names. Before one is sent, the names in it are replaced, once for each text: tables where
SQL expects a table and in `table.column`, indexes where one is made, dropped or asked for. A column that is called like a
table keeps its name. Without a schema and a prefix, nothing is looked at.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection

from noonbell.errors import SettingsError

MAX_PREFIX = 30
"""Characters. The longest index name and a prefix fit into the 63 of PostgreSQL."""

_PLAIN_LOCK = 7031170001

_PREFIX = re.compile(rf"[a-z_][a-z0-9_]{{0,{MAX_PREFIX - 1}}}")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*"
    r"|(?P<here>current_schema\(\))|(?P<word>[A-Za-z_]\w*)|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)
_BEFORE_A_TABLE = frozenset({"from", "join", "straight_join", "into", "update", "table", "using", "of"})


class Names:
    """How the tables and indexes of one store are called in its database."""

    def __init__(
        self,
        schema: str | None = None,
        prefix: str = "",
        *,
        tables: Collection[str] = (),
        indexes: Collection[str] = (),
    ) -> None:
        if schema is not None and not _SCHEMA.fullmatch(schema):
            raise SettingsError.field(
                "store.schema",
                f"is {schema!r}; takes up to 63 lower-case letters, digits and underscores, no digit first",
            )
        if prefix and not _PREFIX.fullmatch(prefix):
            raise SettingsError.field(
                "store.table_prefix",
                f"is {prefix!r}; takes up to {MAX_PREFIX} lower-case letters, digits and underscores, no digit first",
            )
        self.schema, self.prefix = schema, prefix
        self._tables, self._indexes = frozenset(tables), frozenset(indexes)
        self._within = "" if schema is None else f'"{schema}".'
        self.is_plain = schema is None and not prefix
        self.apply = _unchanged if self.is_plain else functools.lru_cache(maxsize=2048)(self._applied)
        """A statement as the database has to see it. Each text is taken apart once."""

    def bare(self, name: str) -> str:
        """With the prefix, without the schema: as the catalogue of the database has it."""
        return f"{self.prefix}{name}"

    def table(self, name: str) -> str:
        return f"{self._within}{self.prefix}{name}"

    def plain(self, name: str) -> str | None:
        """The plain name of what the catalogue calls so; None where it has another prefix."""
        return name[len(self.prefix) :] if name.startswith(self.prefix) else None

    @property
    def mark(self) -> str:
        """Tells this store's locks and channels from those of others in the same database; empty where names are plain."""
        return "" if self.is_plain else hashlib.sha256(f"{self.schema or ''}/{self.prefix}".encode()).hexdigest()[:16]

    @property
    def lock_number(self) -> int:
        """For a database whose locks have numbers."""
        return _PLAIN_LOCK if self.is_plain else int(self.mark, 16) >> 2

    def _applied(self, sql: str) -> str:
        parts: list[str] = []
        words = ["", "", ""]  # the last three, brackets and dots among them
        makes_index = re.match(r"\s*create\s+(unique\s+)?index\b", sql, re.IGNORECASE) is not None
        for token in _TOKEN.finditer(sql):
            text = token[0]
            if token["here"] and self.schema is not None:
                text = f"'{self.schema}'"
            elif token["word"]:
                text = self._renamed(text, words, sql[token.end() : token.end() + 1], makes_index=makes_index)
            parts.append(text)
            if not token["space"]:
                words = [*words[1:], token[0].lower()]
        return "".join(parts)

    def _renamed(self, word: str, before: list[str], after: str, *, makes_index: bool) -> str:
        last = before[-1]
        if word in self._indexes and (last == "index" or before[-2:] == ["indexed", "by"]):
            return self.table(word) if before[-2:] == ["drop", "index"] else self.bare(word)
        if word not in self._tables or last == ".":
            return word
        if after == ".":
            return self.bare(word)
        opened = last == "(" and before[-2] in ("from", "join")
        if opened or (last in _BEFORE_A_TABLE and before[-2:] != ["key", "update"]) or (last == "on" and makes_index):
            return self.table(word)
        return word


def _unchanged(sql: str) -> str:
    return sql


PLAIN = Names()
