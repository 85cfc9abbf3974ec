"""What no file under src/ may do at all, read from its syntax tree: each would open a door (S9, S20, S23, S26, S31)."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "noonbell"
PATHS = [str(path.relative_to(SOURCE)) for path in sorted(SOURCE.rglob("*.py"))]

UNSAFE_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "xml.sax", "telnetlib", "xmlrpc"}
UNSAFE_CALLS = {
    *("eval", "exec", "compile", "__import__", "input", "breakpoint"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"),
    *("os.system", "os.popen", "tempfile.mktemp", "ssl._create_unverified_context"),
}
UNSAFE_NAMES = {"CERT_NONE", "UnsafeLoader", "FullLoader"}
PATTERN_CALLS = {
    f"re.{name}" for name in ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall")
}


@cache
def tree_of(path: str) -> ast.Module:
    return ast.parse((SOURCE / path).read_text())


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(tree: ast.Module) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, alias.name) for alias in names if alias.name in UNSAFE_IMPORTS]
            case ast.ImportFrom(module=str(module)) if module in UNSAFE_IMPORTS:
                found.append((node.lineno, module))
            case ast.Call(func=func, keywords=keywords):
                name = dotted(func)
                if name in UNSAFE_CALLS:
                    found.append((node.lineno, name))
                found += [
                    (node.lineno, f"{name}({key.arg}={key.value.value})")
                    for key in keywords
                    if isinstance(key.value, ast.Constant) and (key.arg, key.value.value) in UNSAFE_ARGUMENTS
                ]
            case ast.Attribute(attr=attr) if attr in UNSAFE_NAMES:
                found.append((node.lineno, attr))
            case ast.Assign(targets=[ast.Attribute(attr="check_hostname")], value=ast.Constant(value=False)):
                found.append((node.lineno, "check_hostname"))
            case _:
                pass
    return found


UNSAFE_ARGUMENTS = {("shell", True), ("verify", False), ("check_hostname", False), ("autoescape", False)}


def patterns_made_up(tree: ast.Module) -> list[int]:
    """Lines where a regular expression is made of something that is not written there or named as a constant.

    What stands outside of every function is made before anybody has sent anything.
    """
    lines: set[int] = set()
    left: list[tuple[ast.AST, bool]] = [(tree, False)]
    while left:
        node, is_inside = left.pop()
        is_inside = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        left += [(each, is_inside) for each in ast.iter_child_nodes(node)]
        if is_inside and isinstance(node, ast.Call) and node.args and dotted(node.func) in PATTERN_CALLS:
            names = [part.id for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)]
            if any(not name.isupper() and name != "re" for name in names):
                lines.add(node.lineno)
    return sorted(lines)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_unsafe_is_called(path):
    assert unsafe(tree_of(path)) == []


PATTERNS_FROM_VARIABLES = {
    "fields/kinds.py": 1,  # of a field's declaration: written in the code
    "policy/alerts.py": 1,  # of globs, by fnmatch.translate, which makes atomic groups; 100 of 200 characters at most
    "service/translation.py": 1,  # of templates that are written in the code; the text is cut to _LONGEST
    "when/natural_language.py": 2,  # of the module's own tables, compiled when somebody asks; the text is cut to _LONGEST
}


def test_no_regular_expression_is_made_of_what_a_caller_sent():
    """S23: a pattern of a caller's making can take all the time there is."""
    found = {
        path: len(lines)
        for path, tree in ((path, tree_of(path)) for path in PATHS)
        if (lines := patterns_made_up(tree))
    }
    assert found == PATTERNS_FROM_VARIABLES


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "eval(x)",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "subprocess.run(x, shell=True)",
        "context.verify_mode = ssl.CERT_NONE",
        "context.check_hostname = False",
        "jinja2.Environment(autoescape=False)",
    ],
)
def test_the_rule_sees_what_it_forbids(text):
    assert len(unsafe(ast.parse(text))) >= 1


def test_the_rule_sees_a_pattern_that_was_sent():
    assert patterns_made_up(ast.parse("def f(given): return re.search(given['pattern'], text)")) == [1]
    assert patterns_made_up(ast.parse("find = lambda given: re.search(f'a{given}', text)")) == [1]
    assert patterns_made_up(ast.parse("def f(given): return re.search(r'a+', given)")) == []


# S9: pages


WEB = SOURCE / "web"
MARKUP = {
    "html": re.compile(
        r"\|\s*safe\b|autoescape|Markup|\bon\w+\s*=|\bstyle=|<style|<script(?![^>]* src=\"{{ asset\()|javascript:|srcdoc"
        r"|<[^>]*=\s*{{",
    ),
    "js": re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|setHTML|srcdoc|\beval\b"
        r"|new Function|javascript:|setTimeout\(\s*[\"'`]",
    ),
}
"""How a text becomes more than one: in a template, in a script."""
OURS = {("task_form.html", "{{ more|safe }}")}
"""Attributes that stand written out in the template itself."""


def markup_of(name: str, text: str) -> list[str]:
    kind = name.rpartition(".")[2]
    for where, piece in OURS:
        text = text.replace(piece, "") if where == name else text
    return [found[0] for found in MARKUP[kind].finditer(text)] if kind in MARKUP else []


def test_no_template_and_no_script_makes_markup_of_a_text():
    files = [*(WEB / "templates").iterdir(), *(WEB / "static").glob("*.js")]
    assert len(files) > 25
    assert {path.name: found for path in files if (found := markup_of(path.name, path.read_text()))} == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.html", "{{ task.name | safe }}"),
        ("x.html", "<a href={{ url }}>"),
        ("x.html", "<a onclick='x()'>"),
        ("x.html", "<script>x()</script>"),
        ("x.js", "node.innerHTML = text"),
    ],
)
def test_the_rule_sees_markup(name, text):
    assert markup_of(name, text) != []
