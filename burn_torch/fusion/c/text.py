"""Reads the C that kernels are written in: loops, declarations and assignments, as trees.

It knows nothing of the writer: what is proved of a kernel (`kernel_proof`) is proved of the text that is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

__all__ = ["Assign", "Declare", "Expression", "Loop", "Statement", "parse_kernel"]

Expression = tuple[Any, ...]
"""("number", value), ("name", n), ("at", array, index), ("call", f, *arguments), ("cast", type, x), ("?", c, x, y), or
an operator with its operands.
"""


@final
@dataclass(frozen=True)
class Loop:
    """for (variable = begin; variable < end; variable += step).  kind: "parallel", "simd" or "" for neither."""

    variable: str
    begin: Expression
    end: Expression
    step: Expression
    kind: str
    body: list[Statement] = field(default_factory=list)


@final
@dataclass(frozen=True)
class Declare:
    """A variable, or an array of `size` elements."""

    type: str
    name: str
    size: Expression | None
    value: Expression | None


@final
@dataclass(frozen=True)
class Assign:
    """target op value; op: "" where the expression stands for itself."""

    target: Expression | None
    op: str
    value: Expression


Statement = Loop | Declare | Assign

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<pragma>\#[^\n]*)|(?P<number>0x[\dA-Fa-f.]+(?:p-?\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?)(?:f|LL|L|u|F)*"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<text>\"[^\"]*\")"
    r"|(?P<sign>\+\+|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%|&^]=|[-+*/%<>=!~?:;,&|^(){}\[\]]))"
)
_TYPES: Final = frozenset(
    {"int", "int64_t", "float", "double", "_Float16", "_Bool", "block_"}
    | {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_ORDER: Final[Sequence[frozenset[str]]] = tuple(
    frozenset(signs.split()) for signs in ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %")
)


def parse_kernel(source: str, name: str) -> tuple[list[tuple[str, str]], list[Statement]]:
    """The parameters (type, name) of a function, and its body.  Raises: SyntaxError for what no kernel has."""
    source = re.sub(r"/\*.*?\*/", " ", source, flags=re.DOTALL)
    begin = re.search(rf"\bvoid {re.escape(name)}\(", source)
    if begin is None:
        raise SyntaxError(f"there is no function {name}")
    head, text = source[begin.end() :].split(") {", 1)
    parameters = []
    for part in head.split(","):
        kind, _, parameter = part.strip().rpartition(" ")
        parameters.append((kind + "*" * parameter.count("*"), parameter.lstrip("*")))
    return parameters, _Parser(text).block()


@final
class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: Final[list[tuple[str, str]]] = []
        self.at = 0
        place = 0
        text = text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise SyntaxError(f"no C of kernels: {text[place : place + 40]!r}")
            kind = match.lastgroup
            assert kind is not None
            self.tokens.append((kind, match[kind]))
            place = match.end()

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        text = self.peek()
        if expected and text not in expected:
            raise SyntaxError(
                f"{' '.join(t for _, t in self.tokens[self.at : self.at + 8])!r} where {expected} belongs"
            )
        self.at += 1
        return text

    def take_all(self, *texts: str) -> None:
        """Takes these, one after the other."""
        for text in texts:
            self.take(text)

    def skip(self, text: str) -> bool:
        """Takes this if it comes next; whether it did."""
        comes = self.peek() == text
        self.at += comes
        return comes

    # -- statements --------------------------------------------------------------------------------
    def block(self) -> list[Statement]:
        """Statements up to the bracket that closes them."""
        statements: list[Statement] = []
        kinds: list[str] = []
        while self.peek() != "}":
            if self.tokens[self.at][0] == "pragma":
                kinds = _kinds(self.take())
            elif self.peek() == "for":
                statements.append(self.loop(kinds))
                kinds = []
            else:
                statements.append(self.simple())
                self.take(";")
        self.take("}")
        return statements

    def loop(self, kinds: list[str]) -> Loop:
        self.take_all("for", "(", "int64_t")
        variable = self.take()
        self.take("=")
        begin = self.expression()
        self.take_all(";", variable, "<")
        end = self.expression()
        self.take(";")
        step: Expression = ("number", 1)
        if self.skip("++"):
            self.take(variable)
        else:
            self.take_all(variable, "+=")
            step = self.expression()
        self.take(")")
        loop = Loop(variable, begin, end, step, kinds[0] if kinds else "")
        if self.skip("{"):
            loop.body.extend(self.block())
        elif self.tokens[self.at][0] == "pragma" or self.peek() == "for":
            rest = _kinds(self.take()) if self.tokens[self.at][0] == "pragma" else kinds[1:]
            loop.body.append(self.loop(rest))
        else:
            loop.body.append(self.simple())
            self.take(";")
        return loop

    def simple(self) -> Declare | Assign:
        if self.peek() in _TYPES:
            kind, name = self.take(), self.take()
            size = value = None
            if self.skip("["):
                size = self.expression()
                self.take("]")
            if self.skip("="):
                value = self.expression()
            return Declare(kind, name, size, value)
        target = self.expression()
        if self.peek() in ("=", "+=", "-=", "*=", "/=", "|=", "&="):
            return Assign(target, self.take(), self.expression())
        return Assign(None, "", target)

    # -- expressions ------------------------------------------------------------------------------------
    def expression(self) -> Expression:
        test = self.binary(0)
        if not self.skip("?"):
            return test
        yes = self.expression()
        self.take(":")
        return ("?", test, yes, self.expression())

    def binary(self, level: int) -> Expression:
        if level == len(_ORDER):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _ORDER[level]:
            left = (self.take(), left, self.binary(level + 1))
        return left

    def unary(self) -> Expression:
        if self.peek() in ("-", "!", "~", "+"):
            return (f"unary {self.take()}", self.unary())
        if self.peek() == "(" and self.peek(1) in {*_TYPES, "void"} and self.peek(2) == ")":
            self.take()
            kind = self.take()
            self.take(")")
            return ("cast", kind, self.unary())
        return self.primary()

    def primary(self) -> Expression:
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            whole = text.isdigit()
            return ("number", int(text) if whole else float.fromhex(text) if text.startswith("0x") else float(text))
        if kind == "text":
            return ("text", text)
        if text == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if kind != "name":
            raise SyntaxError(f"{text!r} begins no expression")
        if self.skip("("):
            arguments = []
            while self.peek() != ")":
                arguments.append(self.expression())
                self.skip(",")
            self.take(")")
            return ("call", text, *arguments)
        if self.skip("["):
            index = self.expression()
            self.take("]")
            return ("at", text, index)
        return ("name", text)


def _kinds(pragma: str) -> list[str]:
    """Returns the kinds that a pragma gives the loops below it, the outermost first."""
    if "parallel for" in pragma:
        count = re.search(r"collapse\((\d+)\)", pragma)
        return ["parallel"] * (int(count[1]) if count else 1)
    return ["simd"] if "omp simd" in pragma else []
