"""The language of `when`: a condition over `steps`, `payload` and `slot`, without calls, names of its own or loops.

    or < and < not < == != < <= > >= in, not in < + - < * / % < -x < values, names, [lists], (parentheses)

It is read when a task is saved and carried out when a step's turn has come. Neither can take long: the text is short,
nesting is bounded, numbers and texts cannot grow beyond a bound, and nothing repeats a text or a list. Values are those of
JSON: `true` is no number, and what has no order is not compared by `<`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from noonbell.errors import InvalidArgument, Sentence, both
from noonbell.model.failure_text import failure_text
from noonbell.policy import value_path
from noonbell.policy.value_path import InputError, ValuePath, clipped, kind_of

ROOTS: Final = ("steps", "payload", "slot")
LONGEST: Final = 1_000
DEEPEST: Final = 20
LONGEST_TEXT: Final = 1_048_576
"""Characters of a text that `+` may make."""
LARGEST: Final = 2**63 - 1
"""The largest whole number that may be written here or reckoned with."""

Scope = Mapping[str, Any]


class ExpressionError(InvalidArgument):
    """The text is no expression. `position` is where, counted in characters from 0."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(Sentence("{problem} (at position {position})", problem=problem, position=position))
        self.position = position


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    paths: frozenset[ValuePath]
    """Every name in it."""
    _condition: _Node

    @property
    def steps(self) -> frozenset[str]:
        """The ids of the steps that it reads."""
        return frozenset(path.step for path in self.paths if path.step is not None)

    def evaluate(self, scope: Scope) -> Any:
        """Its value: the step runs if it is truthy. InputError for a name that is missing and for a type that does not fit."""
        try:
            return self._condition.value(scope)
        except RecursionError:
            raise InputError(failure_text("input_compared_deep")) from None


def parse(text: str) -> Expression:
    """The expression; ExpressionError if the text is none."""
    if len(text) > LONGEST:
        said = Sentence("has {count} characters; expected at most {most}", count=len(text), most=LONGEST)
        raise ExpressionError(said, LONGEST)
    if not text.strip():
        raise ExpressionError("is empty; expected a condition such as steps.extract.result.count > 0", 0)
    return _parse_cached(text)


# Tokens

_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD_AHEAD = re.compile(r"[\w.]")
_PLAIN_TEXT: Final = {'"': re.compile(r'[^"\\]+'), "'": re.compile(r"[^'\\]+")}
_ESCAPES: Final = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t", "/": "/"}
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_WORDS: Final = frozenset({"and", "or", "not", "in"})
_WRONG: Final = {
    "{{": "names stand here without braces; expected a name such as payload.x",
    "}}": "names stand here without braces; expected a name such as payload.x",
    "===": "expected ==",
    "!==": "expected !=",
    "<>": "expected !=",
    "&&": "expected 'and'",
    "||": "expected 'or'",
    "**": "there is no power here; expected one of + - * / %",
    "//": "expected one of + - * / %",
    ":=": "nothing can be assigned here; expected ==",
    "=>": "expected >=",
    "=<": "expected <=",
    "=": "expected ==",
    "!": "expected 'not' or !=",
    "&": "expected 'and'",
    "|": "expected 'or'",
    "{": "objects cannot be written here; expected a name, a number, a text or a list",
}
_OPERATORS: Final = frozenset({"==", "!=", "<=", ">=", *"<>+-*/%()[],"})
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_VALUE: Final = "a name, a number, a text, a list or '('"


class _Token(NamedTuple):
    kind: str
    """`value`, `path`, `end`, or the operator or word itself."""
    start: int
    end: int
    value: Any = None


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while True:
        if (space := _SPACE.match(text, at)) is not None:
            at = space.end()
        if at == len(text):
            return [*found, _Token("end", at, at)]
        found.append(_token(text, at))
        at = found[-1].end


def _token(text: str, at: int) -> _Token:
    first = text[at]
    if (number := _NUMBER.match(text, at)) is not None:
        return _number_token(text, number)
    if first in _PLAIN_TEXT:
        return _text_token(text, at)
    if (found := value_path.read(text, at, dashes=False)) is not None:
        return _name_token(text, at, *found)
    for length in (3, 2, 1):
        sign = text[at : at + length]
        if sign in _OPERATORS:
            return _Token(sign, at, at + len(sign))
        if sign in _WRONG:
            raise ExpressionError(Sentence("{value} is unknown; {problem}", value=repr(sign), problem=_WRONG[sign]), at)
    if first == ".":
        raise ExpressionError("'.' stands alone; expected a name before and after it, or a digit before it", at)
    said = Sentence("the character {value} is unknown; expected {what}", value=repr(first), what=_VALUE)
    raise ExpressionError(said, at)


def _number_token(text: str, found: re.Match[str]) -> _Token:
    written, start, end = found[0], found.start(), found.end()
    if _WORD_AHEAD.match(text, end):
        wrong = repr(clipped(text[start : end + 1]))
        raise ExpressionError(Sentence("{value} is no number; expected one such as 3 or 0.5", value=wrong), start)
    is_whole = written.isdigit()
    value: int | float = int(written) if is_whole and len(written) <= 19 else float(written)
    if abs(value) > LARGEST if is_whole else not math.isfinite(value):
        said = "{value} is too large a number; expected one of at most 18 digits"
        raise ExpressionError(Sentence(said, value=clipped(written)), start)
    return _Token("value", start, end, value)


def _text_token(text: str, start: int) -> _Token:
    quote, at = text[start], start + 1
    parts: list[str] = []
    while at < len(text):
        if text[at] == quote:
            return _Token("value", start, at + 1, "".join(parts))
        if (plain := _PLAIN_TEXT[quote].match(text, at)) is not None:
            parts.append(plain[0])
            at = plain.end()
        elif (escape := text[at + 1 : at + 2]) in _ESCAPES:
            parts.append(_ESCAPES[escape])
            at += 2
        else:
            said = "{value} is no escape; expected \\\\, \\\", \\', \\n, \\r or \\t"
            raise ExpressionError(Sentence(said, value=repr(text[at : at + 2])), at)
    raise ExpressionError(Sentence("the text is never closed; expected {quote}", quote=quote), start)


def _name_token(text: str, start: int, path: ValuePath, end: int) -> _Token:
    word = path.text
    if word in _WORDS:
        return _Token(word, start, end)
    if word in _CONSTANTS:
        return _Token("value", start, end, _CONSTANTS[word])
    if word == "is":
        raise ExpressionError("'is' is unknown; expected ==", start)
    if path.root not in ROOTS:
        expected = f"'{word.lower()}'" if word.lower() in _WORDS else "steps, payload, slot or a value"
        said = "{value} is unknown; expected {what}"
        raise ExpressionError(Sentence(said, value=repr(clipped(path.root)), what=expected), start)
    ahead = text[end : end + 1]
    if ahead == "(":
        said = "{name} is called; nothing can be called here, expected an operator"
        raise ExpressionError(Sentence(said, name=value_path.quoted(path)), end)
    if ahead == ".":
        raise ExpressionError("expected a name or a number after the dot", end + 1)
    if ahead == "[":
        raise ExpressionError('expected an index such as [0] or ["a b"]', end)
    problem = value_path.shape_problem(path)
    if problem is not None:
        if ahead == "-" and path.root == "steps":
            problem = both(problem, 'a step whose id has a dash is written steps["a-b"]')
        raise ExpressionError(problem, start)
    return _Token("path", start, end, path)


# Nodes: each has the stretch of text that it was read from, for messages


@dataclass(frozen=True, slots=True)
class _Node:
    source: str

    def value(self, scope: Scope) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Literal(_Node):
    literal: Any

    def value(self, scope: Scope) -> Any:
        del scope
        return self.literal


@dataclass(frozen=True, slots=True)
class _Name(_Node):
    path: ValuePath

    def value(self, scope: Scope) -> Any:
        return value_path.look_up(self.path, scope)


@dataclass(frozen=True, slots=True)
class _List(_Node):
    items: tuple[_Node, ...]

    def value(self, scope: Scope) -> Any:
        return [item.value(scope) for item in self.items]


@dataclass(frozen=True, slots=True)
class _Either(_Node):
    """`and` and `or`: the first operand that decides, or the last one."""

    stops_at: bool
    operands: tuple[_Node, ...]

    def value(self, scope: Scope) -> Any:
        value = None
        for operand in self.operands:
            value = operand.value(scope)
            if bool(value) is self.stops_at:
                break
        return value


@dataclass(frozen=True, slots=True)
class _Not(_Node):
    operand: _Node

    def value(self, scope: Scope) -> Any:
        return not self.operand.value(scope)


@dataclass(frozen=True, slots=True)
class _Negative(_Node):
    operand: _Node

    def value(self, scope: Scope) -> Any:
        return -_number(self.operand, self.operand.value(scope), "-")


@dataclass(frozen=True, slots=True)
class _Comparison(_Node):
    sign: str
    left: _Node
    right: _Node

    def value(self, scope: Scope) -> Any:
        left, right = self.left.value(scope), self.right.value(scope)
        match self.sign:
            case "==":
                return _same(left, right)
            case "!=":
                return not _same(left, right)
            case "in":
                return self._holds(right, left)
            case "not in":
                return not self._holds(right, left)
            case _:
                return self._ordered(left, right)

    def _ordered(self, left: Any, right: Any) -> bool:
        are_numbers = _is_number(left) and _is_number(right)
        if not are_numbers and not (isinstance(left, str) and isinstance(right, str)):
            sides = {"left": clipped(self.left.source), "right": clipped(self.right.source)}
            kinds = {"found": kind_of(left), "other": kind_of(right)}
            raise InputError(failure_text("input_not_ordered", **sides, **kinds, sign=self.sign))
        return bool(_ORDERS[self.sign](left, right))

    def _holds(self, whole: Any, part: Any) -> bool:
        match whole:
            case list():
                return part in whole and any(_same(part, each) for each in whole)
            case str() if isinstance(part, str):
                return part in whole
            case Mapping() if isinstance(part, str):
                return part in whole
            case str() | Mapping():
                kinds = {"found": kind_of(part), "other": kind_of(whole)}
                problem = failure_text("input_no_text_in", left=clipped(self.left.source), **kinds)
            case _:
                problem = failure_text("input_not_in", right=clipped(self.right.source), found=kind_of(whole))
        raise InputError(problem)


@dataclass(frozen=True, slots=True)
class _Arithmetic(_Node):
    """A row of operators of the same rank, from left to right: long rows are not nested deep."""

    first: _Node
    rest: tuple[tuple[str, _Node], ...]

    def value(self, scope: Scope) -> Any:
        value, node = self.first.value(scope), self.first
        for sign, operand in self.rest:
            other = operand.value(scope)
            if sign == "+" and isinstance(value, str) and isinstance(other, str):
                if len(value) + len(other) > LONGEST_TEXT:
                    raise InputError(failure_text("input_long_text", source=clipped(self.source), most=LONGEST_TEXT))
                value += other
            else:
                value = self._reckoned(sign, _number(node, value, sign), _number(operand, other, sign))
            node = self
        return value

    def _reckoned(self, sign: str, left: float, right: float) -> float:
        if sign in "/%" and right == 0:
            raise InputError(failure_text("input_by_zero", source=clipped(self.source)))
        value: float = _ARITHMETIC[sign](left, right)
        if abs(value) > LARGEST if isinstance(value, int) else not math.isfinite(value):
            raise InputError(failure_text("input_large_number", source=clipped(self.source)))
        return value


_ORDERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(node: _Node, value: Any, sign: str) -> Any:
    if not _is_number(value):
        code = "input_no_sum" if sign == "+" else "input_no_number"
        raise InputError(failure_text(code, source=clipped(node.source), found=kind_of(value), sign=sign))
    if isinstance(value, int) and abs(value) > LARGEST:
        raise InputError(failure_text("input_number_for", source=clipped(node.source), sign=sign))
    return value


def _same(left: Any, right: Any) -> bool:
    """Equality of JSON values: unlike in Python, `true` is not 1, at no depth."""
    if left != right:
        return False
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list):
        return all(map(_same, left, right))
    if isinstance(left, Mapping):
        return all(_same(each, right[name]) for name, each in left.items())
    return True


# Reading


class _Reader:
    """One method for each rank of operators, the loosest first; each leaves `_at` behind what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._list = _tokens(text)
        self._at = 0
        self._depth = 0
        self.paths: set[ValuePath] = set()

    def whole(self) -> _Node:
        node = self._either()
        token = self._list[self._at]
        if token.kind in (*_COMPARISONS, "in", "not"):
            raise self._refused("'and' or 'or' between two comparisons")
        if token.kind != "end":
            raise self._refused("and, or, an operator or the end")
        return node

    def _either(self) -> _Node:
        return self._row("or", True, lambda: self._row("and", False, self._negation))

    def _row(self, word: str, stops_at: bool, below: Callable[[], _Node]) -> _Node:
        start = self._start()
        operands = [below()]
        while self._takes(word):
            operands.append(below())
        return operands[0] if len(operands) == 1 else _Either(self._since(start), stops_at, tuple(operands))

    def _negation(self) -> _Node:
        start = self._start()
        if not self._takes("not"):
            return self._comparison()
        operand = self._deeper(self._negation)
        return _Not(self._since(start), operand)

    def _comparison(self) -> _Node:
        start = self._start()
        left = self._sum()
        sign = self._comparison_sign()
        if sign is None:
            return left
        right = self._sum()
        return _Comparison(self._since(start), sign, left, right)

    def _comparison_sign(self) -> str | None:
        for sign in (*_COMPARISONS, "in"):
            if self._takes(sign):
                return sign
        if self._list[self._at].kind == "not":
            self._at += 1
            if not self._takes("in"):
                raise self._refused("'in' after 'not'")
            return "not in"
        return None

    def _sum(self) -> _Node:
        return self._arithmetic("+-", lambda: self._arithmetic("*/%", self._negative))

    def _arithmetic(self, signs: str, below: Callable[[], _Node]) -> _Node:
        start = self._start()
        first, rest = below(), []
        while (sign := self._list[self._at].kind) in tuple(signs):
            self._at += 1
            rest.append((sign, below()))
        return _Arithmetic(self._since(start), first, tuple(rest)) if rest else first

    def _negative(self) -> _Node:
        start = self._start()
        if not self._takes("-"):
            return self._value()
        operand = self._deeper(self._negative)
        return _Negative(self._since(start), operand)

    def _value(self) -> _Node:
        token = self._list[self._at]
        self._at += 1
        match token.kind:
            case "value":
                return _Literal(self._since(token.start), token.value)
            case "path":
                self.paths.add(token.value)
                return _Name(self._since(token.start), token.value)
            case "(":
                node = self._deeper(self._either)
                self._close(")", token)
                return node
            case "[":
                items = self._items()
                self._close("]", token)
                return _List(self._since(token.start), items)
            case _:
                pass
        self._at -= 1
        raise self._refused(_VALUE)

    def _items(self) -> tuple[_Node, ...]:
        items: list[_Node] = []
        while self._list[self._at].kind != "]":
            items.append(self._deeper(self._either))
            if not self._takes(","):
                break
        return tuple(items)

    def _close(self, sign: str, opened: _Token) -> None:
        if not self._takes(sign):
            template = (
                "',' or {sign} for the {opened} at position {at}"
                if sign == "]"
                else "{sign} for the {opened} at position {at}"
            )
            opening = repr(self._text[opened.start])
            raise self._refused(Sentence(template, sign=repr(sign), opened=opening, at=opened.start))

    def _deeper(self, read: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > DEEPEST:
            said = Sentence("is nested too deep; expected at most {most} levels", most=DEEPEST)
            raise ExpressionError(said, self._start())
        node = read()
        self._depth -= 1
        return node

    def _takes(self, kind: str) -> bool:
        if self._list[self._at].kind != kind:
            return False
        self._at += 1
        return True

    def _start(self) -> int:
        return self._list[self._at].start

    def _since(self, start: int) -> str:
        return self._text[start : self._list[self._at - 1].end]

    def _shown(self, token: _Token) -> str:
        return repr(clipped(self._text[token.start : token.end]))

    def _refused(self, expected: str) -> ExpressionError:
        token = self._list[self._at]
        problem = "the condition ends too early"
        if token.kind != "end":
            problem = Sentence("{value} cannot stand here", value=self._shown(token))
        return ExpressionError(Sentence("{problem}; expected {what}", problem=problem, what=expected), token.start)


@lru_cache(maxsize=1024)
def _parse_cached(text: str) -> Expression:
    reader = _Reader(text)
    condition = reader.whole()
    return Expression(text, frozenset(reader.paths), condition)
