"""Select variants by an expression, as pytest's ``-k`` does.

A word is a part of a name, or a glob with ``*``. ``category:``, ``tag:`` and ``profile:`` select by
these fields. ``and``, ``or``, ``not`` and parentheses combine terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from benchkit.measure.errors import InvalidSelectionError, did_you_mean

Predicate = Callable[[Any], bool]

# The brackets of a variant's name may contain spaces and parentheses: chunks=(100, 100).
_TOKEN = re.compile(
    r"\s*(?:(?P<paren>[()])|(?P<word>[^\s()\[]*\[.{0,2000}?\](?=[\s()]|$)|[^\s()]+))", re.DOTALL
)
#: The profile that contains all variants.
COMPLETE_PROFILE = "release"
#: Maximum nesting: Python ends a deeper recursion with an error.
_MAX_DEPTH = 50
#: Characters of an expression in a message.
_SHOWN = 200
_FIELDS = ("category", "name", "profile", "tag")


def matcher(expression: str, *, glob: bool = False) -> Predicate:
    """Return a function that returns whether a variant is selected.

    Examples
    --------
    >>> chosen = matcher("category:array and not square")
    """
    if not isinstance(expression, str):
        raise InvalidSelectionError(f"-k {expression!r}: must be text, such as 'category:array'")
    if glob:
        return lambda variant: _name_matches(variant.name, expression)
    return _Parser(expression).parse()


class _Parser:
    """Recursive descent: or < and < not < word."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.tokens: list[tuple[str, int]] = []
        position = 0
        end = len(expression.rstrip())
        while position < end:
            match = _TOKEN.match(expression, position)
            assert match is not None  # every character except space and parentheses matches
            text = match.group("paren") or match.group("word")
            self.tokens.append((text, match.end() - len(text)))
            position = match.end()
        self.index, self.depth = 0, 0

    def parse(self) -> Predicate:
        if not self.tokens:
            raise InvalidSelectionError(
                "-k '': the expression is empty: name a workload, or omit -k"
            )
        predicate = self.parse_or()
        if self.index < len(self.tokens):
            self.fail(f"unexpected {self.peek()!r}")
        return predicate

    def parse_or(self) -> Predicate:
        self.nest(1)
        terms = [self.parse_and()]
        while self.take("or"):
            terms.append(self.parse_and())
        self.nest(-1)
        return terms[0] if len(terms) == 1 else lambda v: any(term(v) for term in terms)

    def parse_and(self) -> Predicate:
        terms = [self.parse_not()]
        while self.take("and"):
            terms.append(self.parse_not())
        return terms[0] if len(terms) == 1 else lambda v: all(term(v) for term in terms)

    def parse_not(self) -> Predicate:
        if self.take("not"):
            self.nest(1)
            inner = self.parse_not()
            self.nest(-1)
            return lambda v: not inner(v)
        return self.parse_operand()

    def parse_operand(self) -> Predicate:
        if self.take("("):
            inner = self.parse_or()
            if not self.take(")"):
                self.fail("a ')' is missing")
            return inner
        text = self.peek()
        if text is None:
            self.fail("incomplete expression")
        if text in ("and", "or", ")"):
            self.fail(f"unexpected {text!r}")
        assert text is not None
        self.index += 1
        return self.parse_term(text)

    def parse_term(self, text: str) -> Predicate:
        key, colon, value = text.partition(":")
        if not colon or "[" in key or value.startswith(":"):  # a parameter's value, a node id
            return lambda v: _name_matches(v.name, text)
        if key not in _FIELDS:
            self.index -= 1
            self.fail(f"{key}: {did_you_mean(key, _FIELDS, 'use ' + ', '.join(_FIELDS))}")
        if key == "category":
            return lambda v: fnmatchcase(v.workload.category, value)
        if key == "name":
            return lambda v: _name_matches(v.name, value)
        if (key, value) == ("profile", COMPLETE_PROFILE):
            return lambda v: True
        if key == "profile":
            return lambda v: bool({value, f"profile:{value}"} & set(v.tags))
        return lambda v: any(fnmatchcase(tag, value) for tag in v.tags)

    def nest(self, step: int) -> None:
        self.depth += step
        if self.depth > _MAX_DEPTH:
            self.fail(f"more than {_MAX_DEPTH} levels of parentheses and 'not'")

    def peek(self) -> str | None:
        return self.tokens[self.index][0] if self.index < len(self.tokens) else None

    def take(self, word: str) -> bool:
        if self.peek() == word:
            self.index += 1
            return True
        return False

    def fail(self, problem: str) -> None:
        at = self.tokens[self.index][1] if self.index < len(self.tokens) else len(self.expression)
        shown = self.expression
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        raise InvalidSelectionError(f"-k {shown!r}: at character {at + 1}: {problem}")


def _name_matches(name: str, pattern: str) -> bool:
    name, pattern = name.lower(), pattern.lower()
    if "*" in pattern:
        escaped = pattern.replace("[", "[[]")  # a bracket is part of a variant's name
        return fnmatchcase(name, escaped) or fnmatchcase(name.partition("[")[0], escaped)
    return pattern in name


def consists_of(text: str, items: list[str]) -> bool:
    """Return whether a text is a list, separated by commas, of some of the items."""
    text = text.strip()
    return text in ("", *items) or any(
        text.startswith(f"{item},")
        and consists_of(text[len(item) + 1 :], [other for other in items if other != item])
        for item in items
    )
