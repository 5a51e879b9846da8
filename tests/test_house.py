"""The package stays readable: few files in its root, short modules, short functions, nobody asks which kind of task."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from statistics import median

import probescale

ROOT = Path(probescale.__file__).parent
MODULES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


def test_the_root_holds_the_front_door_and_nothing_else():
    root = {name for name in MODULES if "/" not in name}
    assert root == {"__init__.py", "__main__.py", "api.py", "errors.py"}


def test_modules_are_short():
    lengths = {name: len(text.splitlines()) for name, text in MODULES.items()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}
    assert median(lengths.values()) < 150


def test_functions_fit_a_screen():
    functions = [
        (name, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for name, text in MODULES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert len(functions) > 1000
    assert [function for function in functions if function[2] >= 70] == []


def test_only_the_kinds_know_which_kind_of_task_it_is():
    # What a probe predicts (classes, several labels, numbers) is probing's own matter, whatever the task.
    asks = re.compile(r"task\.kind(\.name)?\s*(==|!=|in\b)|isinstance\([^)]*(TaggedSentences|Examples)\b")
    outside = {name: text for name, text in MODULES.items() if not name.startswith("tasks/")}
    assert [name for name, text in outside.items() if asks.search(text)] == []
