#!/usr/bin/env python3
"""The fault matrix of docs/OPERATING.md, made from what the tests of a run have proved.

faults.py --check [--skipped N] LOG...   the table and the lines of the logs must say the same
faults.py --write LOG...                 the table becomes the lines of the logs
faults.py --add LOG...                   the lines of the logs replace their rows or become new ones

A test that has proved a fault prints as its last step, by tests/lib/fault.h,

    fault: ID | FAULT | WHAT THE OPERATOR SEES | WHAT IS LOST | HOW IT RECOVERS

the same text in each run. ID is GROUP-NAME, see GROUPS. A log is the output of ctest -V or of a
test; tests/run.sh keeps the lines of the tests that passed in build/test-logs/faults. With --skipped
a row without a line is no failure but "cannot be told here" (77) when N is above 0.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENT = os.path.join(ROOT, "docs", "OPERATING.md")
BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
GROUPS = ("process", "machine", "state", "checkpoint", "redis", "kafka", "clock")  # in this order
HEAD = ("| Id | Fault | What you see | What is lost | How it recovers |\n"
        "| --- | --- | --- | --- | --- |\n")
ID = re.compile(r"[a-z]+(-[a-z0-9]+)+")


def fail(text, code=1):
    print(f"faults: {text}", file=sys.stderr)
    sys.exit(code)


def cells_of(text, where):
    cells = tuple(cell.strip() for cell in text.split("|"))
    if len(cells) != 5 or not all(cells):
        fail(f"{where}: needs five texts with \"|\" between them: {text!r}")
    if not ID.fullmatch(cells[0]) or cells[0].split("-")[0] not in GROUPS:
        fail(f"{where}: {cells[0]!r} is no GROUP-NAME with a group of {', '.join(GROUPS)}")
    return cells


def read_lines(paths):
    """Rows by id, of all the logs."""
    rows = {}
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                found = re.match(r"(?:[0-9]+: )?fault: (.*)", line)
                if found:
                    cells = cells_of(found.group(1), path)
                    if rows.setdefault(cells[0], cells) != cells:
                        fail(f"{path}: {cells[0]} is told in two ways:\n  {' | '.join(cells)}\n"
                             f"  {' | '.join(rows[cells[0]])}")
    return rows


def read_document():
    """What stands before the table, its rows by id, and what stands behind it."""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        fail(f"{DOCUMENT}: needs one line {BEGIN.strip()} and behind it one {END.strip()}")
    head, rest = text.split(BEGIN)
    table, tail = rest.split(END)
    rows = {}
    for line in table.strip("\n").split("\n"):
        if line and line + "\n" not in HEAD:
            found = re.fullmatch(r"\| `([^`]+)` \| (.*) \|", line)
            if not found:
                fail(f"{DOCUMENT}: no row of the matrix: {line!r}")
            cells = cells_of(f"{found.group(1)} | {found.group(2)}", DOCUMENT)
            if cells[0] in rows:
                fail(f"{DOCUMENT}: {cells[0]} stands there twice")
            rows[cells[0]] = cells
    return head, rows, tail


def write_document(head, rows, tail):
    order = sorted(rows, key=lambda name: (GROUPS.index(name.split("-")[0]), name))
    table = "".join(f"| `{name}` | {' | '.join(rows[name][1:])} |\n" for name in order)
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + HEAD + table + END + tail)


def compare(rows, lines):
    """What is wrong, and the rows without a line."""
    wrong = [f"{name} has no row; it was told: {' | '.join(lines[name])}"
             for name in lines if name not in rows]
    wrong += [f"{name} is another fault by now:\n  row:  {' | '.join(rows[name])}\n"
              f"  told: {' | '.join(lines[name])}"
              for name in rows if name in lines and lines[name] != rows[name]]
    return wrong, [name for name in rows if name not in lines]


def check(rows, lines, skipped):
    wrong, untold = compare(rows, lines)
    for text in wrong:
        print(text)
    for name in untold:
        print(f"{name} has a row, but no test that passed has told it")
    if not rows:
        fail("the matrix is empty")
    if wrong or (untold and skipped == 0):
        fail(f"{DOCUMENT} and the tests do not say the same; python3 tests/faults.py --add LOG "
             "takes over what a log says")
    if untold:
        print(f"{len(untold)} faults have no result, for {skipped} tests were skipped")
        return 77
    print(f"result: {len(rows)} faults, each with a result of this run")
    return 0


def main(arguments):
    skipped = 0
    mode = arguments[0] if arguments else ""
    paths = arguments[1:]
    if mode == "--check" and paths[:1] == ["--skipped"] and len(paths) > 1 and paths[1].isdigit():
        skipped = int(paths[1])
        paths = paths[2:]
    if mode not in ("--check", "--write", "--add") or not paths or paths[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 64
    lines = read_lines(paths)
    head, rows, tail = read_document()
    if mode == "--check":
        return check(rows, lines, skipped)
    if not lines:
        fail(f"{paths[0]}: no line of a fault")
    write_document(head, lines if mode == "--write" else {**rows, **lines}, tail)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
