"""Find the regular expressions of a package, and texts on which each could backtrack for long."""

import ast
import importlib
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        from re import _constants as sre
        from re import _parser as sre_parse  # type: ignore[attr-defined]
    except ImportError:  # Python 3.10
        import sre_constants as sre  # type: ignore[no-redef]
        import sre_parse  # type: ignore[no-redef]

_FUNCTIONS = {
    "compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn",
}  # fmt: skip
#: Methods of text columns of pandas that take a regular expression.
_OF_COLUMNS = {"contains", "count", "extract", "extractall", "findall", "fullmatch", "match"}
_OF_COLUMNS |= {"replace", "split"}
#: A file without these has no pattern, and uses none of another file.
_MENTIONS = re.compile(r"\b(?:re|str)\.|" + "|".join(rf"\.{name}\b" for name in _FUNCTIONS))
#: Nodes of a file, and whether each is in a function.
Nodes = list[tuple[ast.AST, bool]]
#: One character of each kind that the patterns of the package tell apart.
CHARACTERS = "a1 A_-.\n/:@=%\"'\\`<[(,*é"
#: Repeats of at least this many characters count as unbounded.
_MANY = 50


@dataclass(frozen=True)
class UsedPattern:
    """A regular expression with the place where it is written and the method that runs it."""

    place: str
    pattern: re.Pattern[Any]
    is_search: bool

    def run(self, text: str) -> None:
        """Run the pattern over a text as the package does."""
        data: Any = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        if self.is_search:
            for _ in self.pattern.finditer(data):
                pass
        else:
            self.pattern.match(data)
            self.pattern.fullmatch(data)


def used_patterns(package: Path) -> tuple[list[UsedPattern], list[str]]:
    """Return the patterns of a package, and the places of those that cannot be seen from outside.

    A pattern is seen if it is written with literals and module-level names only, or if it is, or is
    in a container that is, the value of a module-level name.
    """
    nodes = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts): list(_nodes(text))
        for path in sorted(package.rglob("*.py"))
        if _MENTIONS.search(text := path.read_text("utf-8"))
    }
    anchored = _anchored_names(nodes)
    found, unseen, known = [], [], set()
    for name, inner in nodes.items():
        calls = list(_regex_calls(inner))
        if not calls:
            continue
        module = importlib.import_module(name.removesuffix(".__init__"))
        own = list(_module_patterns(module))
        for key, pattern in own:
            if id(pattern) not in known:  # else imported from another module
                known.add(id(pattern))
                found.append(UsedPattern(f"{name}:{key}", pattern, (name, key) not in anchored))
        for call, method, is_inside in calls:
            place = f"{name}:{call.lineno}"
            try:
                pattern = _evaluated(call, module)
            except (NameError, TypeError, IndexError):
                if is_inside or not own:
                    unseen.append(f"{place}: {ast.unparse(call)[:80]}")
                continue
            if method != "compile" or is_inside:
                found.append(UsedPattern(place, pattern, method not in ("match", "fullmatch")))
    return found, unseen


def _nodes(text: str) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes of a source text, and whether each is in a function."""
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
    while stack:
        node, is_inside = stack.pop()
        yield node, is_inside
        is_inside = is_inside or isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        )
        stack += [(child, is_inside) for child in ast.iter_child_nodes(node)]


def _regex_calls(nodes: Nodes) -> Iterator[tuple[ast.Call, str, bool]]:
    """Yield calls that take a pattern: the node, its method, and whether it is in a function."""
    for node, is_inside in nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, method = node.func.value, node.func.attr
        is_re = isinstance(owner, ast.Name) and owner.id == "re" and method in _FUNCTIONS
        is_column = (
            isinstance(owner, ast.Attribute) and owner.attr == "str" and method in _OF_COLUMNS
        )
        if is_re or (is_column and not _is_literal_search(node, method)):
            yield node, method if is_re else "search", is_inside


def _is_literal_search(call: ast.Call, method: str) -> bool:
    """Return whether a method of a text column searches a fixed text."""
    given = {word.arg: word.value for word in call.keywords}
    regex = given.get("regex")
    if regex is None:
        return method in ("replace", "split")
    return isinstance(regex, ast.Constant) and not regex.value


def _evaluated(call: ast.Call, module: Any) -> re.Pattern[Any]:
    """Return the pattern of a call; raise NameError if it depends on local names."""
    method = call.func.attr  # type: ignore[attr-defined]
    flags = {word.arg: word.value for word in call.keywords}.get("flags")
    position = {"compile": 1, "match": 2, "fullmatch": 2, "search": 2, "findall": 2, "finditer": 2}
    if flags is None and len(call.args) > position.get(method, 9):
        flags = call.args[position[method]]
    values = [
        eval(compile(ast.Expression(node), "<pattern>", "eval"), vars(module)) if node else 0
        for node in (call.args[0], flags)
    ]
    return re.compile(*values)


def _module_patterns(module: Any) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the compiled patterns of a module's own names, also those in containers."""
    for name, value in vars(module).items():
        if not name.startswith("__"):
            for pattern in _patterns_in(value, depth=4):
                yield name, pattern


def _patterns_in(value: Any, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.items():
            yield from _patterns_in(item, depth)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _patterns_in(item, depth - 1)
    elif depth and hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        yield from _patterns_in([getattr(value, n) for n in value.__dataclass_fields__], depth - 1)


def _anchored_names(modules: dict[str, Nodes]) -> set[tuple[str, str]]:
    """Return modules and names on which the package calls `match` or `fullmatch` only."""
    methods: dict[tuple[str, str], set[str]] = {}
    for module, nodes in modules.items():
        origins = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node, _ in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node, _ in nodes:
            if isinstance(node, ast.Attribute) and node.attr in _FUNCTIONS:
                if isinstance(node.value, ast.Name):
                    name = node.value.id
                    methods.setdefault(origins.get(name, (module, name)), set()).add(node.attr)
    return {name for name, used in methods.items() if used <= {"match", "fullmatch"}}


def attacks(pattern: re.Pattern[Any], size: int) -> list[str]:
    """Return texts of a size that repeat a part of a pattern many times and then do not match.

    Each unbounded repeat is pumped with what it accepts, after a text that the pattern accepts
    before it, and before a text that it does not accept.
    """
    source, flags = pattern.pattern, pattern.flags
    parsed = sre_parse.parse(source, flags & ~re.DEBUG)
    texts: dict[str, None] = {}
    for before, pumps, after in _repeats(list(parsed), [""], [""]):
        for prefix, pump in itertools.product(before, pumps):
            body = pump * (size // max(1, len(pump)))
            for suffix in ("\x00", f"{after[0]}\x00", ""):
                texts.setdefault(prefix + body + suffix)
            for start in (prefix, prefix[:1], f"{prefix}{pump * 3} "):
                texts.setdefault(start * (size // max(1, len(start))))
    return list(texts)


def _repeats(
    items: Sequence[Any], before: list[str], after: list[str]
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Yield each unbounded repeat with texts before it, texts that it repeats, texts after it."""
    for position, (kind, value) in enumerate(items):
        head = _joined(before, _samples(items[:position]))
        tail = _joined(_samples(items[position + 1 :]), after)[:2]
        if str(kind) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, high, body = value
            if high >= _MANY:
                yield head, _pumps(list(body), items[position + 1 :]), tail
            yield from _repeats(list(body), head, tail)
        elif kind is sre.SUBPATTERN:
            yield from _repeats(list(value[-1]), head, tail)
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield from _repeats(list(branch), head, tail)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repeats(list(value[1]), head, tail)
        elif str(kind) == "ATOMIC_GROUP":
            yield from _repeats(list(value), head, tail)


def _joined(left: list[str], right: list[str]) -> list[str]:
    return [a + b for a in left[:2] for b in right[:2]][:3]


def _pumps(body: Sequence[Any], following: Sequence[Any]) -> list[str]:
    """Return texts that a repeat accepts: first those that the parts behind it accept, too."""
    texts = list(dict.fromkeys(text for text in _samples(body, many=True) if text))
    starts = {text[:1] for text in _samples(following[:2], many=True)}
    texts.sort(key=lambda text: text[:1] not in starts)
    return texts[:6]


def _samples(items: Sequence[Any], *, many: bool = False) -> list[str]:
    """Return texts that a sequence of parts of a pattern accepts; assertions are ignored."""
    texts = [""]
    limit = 24 if many else 3
    for kind, value in items:
        options = _options(kind, value, many=many)
        texts = [a + b for a in texts for b in options][:limit]
    return texts


def _options(kind: Any, value: Any, *, many: bool) -> list[str]:
    if kind is sre.LITERAL:
        return [chr(value)]
    if kind in (sre.NOT_LITERAL, sre.ANY, sre.IN):
        accepted = [c for c in CHARACTERS if _accepts(kind, value, c)]
        if kind is sre.IN and not accepted:
            accepted = [chr(n) for n in range(1, 256) if _accepts(kind, value, chr(n))]
        return accepted if many else accepted[:1]
    if str(kind) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        low, _, body = value
        texts = _samples(list(body), many=many)
        return [*([""] if low == 0 else []), *(text * max(1, low) for text in texts)]
    if kind is sre.SUBPATTERN:
        return _samples(list(value[-1]), many=many)
    if kind is sre.BRANCH:
        return [text for branch in value[1] for text in _samples(list(branch), many=many)]
    if str(kind) == "ATOMIC_GROUP":
        return _samples(list(value), many=many)
    return [""]


def _accepts(kind: Any, value: Any, character: str) -> bool:
    code = ord(character)
    if kind is sre.ANY:
        return character != "\n"
    if kind is sre.NOT_LITERAL:
        return code != value
    negated = any(item[0] is sre.NEGATE for item in value)
    return negated != any(_is_in(item, code, character) for item in value)


def _is_in(item: tuple[Any, Any], code: int, character: str) -> bool:
    kind, value = item
    if kind is sre.LITERAL:
        return bool(code == value)
    if kind is sre.RANGE:
        return bool(value[0] <= code <= value[1])
    if kind is sre.CATEGORY:
        letter = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(value).rpartition("_")[2]]
        return (re.match(letter, character) is not None) != ("NOT" in str(value))
    return False
