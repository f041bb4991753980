#!/usr/bin/env python3
"""Whether tests/faults.py makes the fault matrix from what tests tell, and sees each way in which the
two can differ."""

import os
import shutil
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FULL = "fault: state-full | the disk is full | `/readyz` says so | nothing | by itself\n"
GONE = "fault: redis-gone | Redis is gone | `/readyz` says so | nothing | by itself\n"
KILLED = "fault: process-killed | kill -9 | a new start | nothing | the start\n"
LOG = "      Start  1: one\n1: [ RUN      ] x\n1: " + FULL + "2: result: 7\n" + GONE + KILLED
TABLE = """head
<!-- faults: begin -->
| Id | Fault | What you see | What is lost | How it recovers |
| --- | --- | --- | --- | --- |
| `process-killed` | kill -9 | a new start | nothing | the start |
| `state-full` | the disk is full | `/readyz` says so | nothing | by itself |
| `redis-gone` | Redis is gone | `/readyz` says so | nothing | by itself |
<!-- faults: end -->
tail
"""
EMPTY = "head\n<!-- faults: begin -->\n<!-- faults: end -->\ntail\n"


class World:
    """A tree with the script and a document of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.document = os.path.join(folder, "docs", "OPERATING.md")
        os.makedirs(os.path.join(folder, "tests"))
        os.makedirs(os.path.join(folder, "docs"))
        shutil.copy(os.path.join(TESTS, "faults.py"), os.path.join(folder, "tests"))

    def run(self, document, mode, *logs):
        """The exit code, the document afterwards, and what was said."""
        with open(self.document, "w", encoding="utf-8") as file:
            file.write(document)
        paths = []
        for i, text in enumerate(logs):
            paths.append(os.path.join(self.folder, f"log{i}"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run(
            [sys.executable, os.path.join(self.folder, "tests", "faults.py"), *mode.split(), *paths],
            capture_output=True, text=True)
        with open(self.document, encoding="utf-8") as file:
            return done.returncode, file.read(), done.stdout + done.stderr


def cases(world):
    """Name, whether it is as it should be, and what was said."""
    def expect(name, good, said):
        return name, good, said

    code, text, said = world.run(EMPTY, "--write", LOG)
    yield expect("written", code == 0 and text == TABLE, said + text)
    code, text, said = world.run(TABLE, "--check", LOG)
    yield expect("the same", code == 0 and text == TABLE and "result: 3 faults" in said, said)
    code, _, said = world.run(TABLE, "--check", FULL, GONE + KILLED, "1: " + FULL)
    yield expect("several logs, one line twice", code == 0, said)

    code, _, said = world.run(TABLE, "--check", FULL + GONE)
    yield expect("a row without a line", code == 1 and "process-killed has a row" in said, said)
    code, _, said = world.run(TABLE, "--check --skipped 0", FULL + GONE)
    yield expect("none was skipped", code == 1, said)
    code, _, said = world.run(TABLE, "--check --skipped 2", FULL + GONE)
    yield expect("some were skipped", code == 77 and said.endswith("2 tests were skipped\n"), said)
    more = LOG + GONE.replace("redis-gone", "redis-old")
    code, _, said = world.run(TABLE, "--check", more)
    yield expect("a line without a row", code == 1 and "redis-old has no row" in said, said)
    code, _, said = world.run(TABLE, "--check --skipped 2", more)
    yield expect("the same with skips", code == 1, said)
    for i, word in enumerate(("the disk is full", "`/readyz` says so", "nothing", "by itself")):
        other = LOG.replace(FULL, FULL.replace(word, "something else"))
        code, _, said = world.run(TABLE, "--check", other)
        yield expect(f"cell {i} differs", code == 1 and "something else" in said, said)
    code, _, said = world.run(TABLE, "--check", LOG + FULL.replace("by itself", "never"))
    yield expect("told in two ways", code == 1 and "two ways" in said, said)
    code, _, said = world.run(EMPTY, "--check --skipped 2", "nothing\n")
    yield expect("an empty matrix", code == 1, said)

    for name, line in (("four cells", "fault: state-x | a | b | c\n"),
                       ("six cells", "fault: state-x | a | b | c | d | e\n"),
                       ("an empty cell", "fault: state-x | a |  | c | d\n"),
                       ("no group", "fault: moon-full | a | b | c | d\n"),
                       ("no name", "fault: state | a | b | c | d\n")):
        for mode in ("--check", "--write", "--add"):
            code, text, said = world.run(TABLE, mode, LOG + line)
            yield expect(f"{name}, {mode}", code == 1 and text == TABLE, said)
    for name, document in (("no marks", "head\n"), ("one mark", EMPTY.replace("begin", "x")),
                           ("a mark twice", EMPTY + EMPTY), ("a row twice", TABLE.replace(
                               "| `redis-gone` |", "| `state-full` |")),
                           ("no row", TABLE.replace("| `redis-gone` |", "| redis-gone |"))):
        code, text, said = world.run(document, "--check", LOG)
        yield expect(name, code == 1 and text == document, said)

    new = GONE.replace("redis-gone", "machine-lost") + FULL.replace("nothing", "a minute")
    code, text, said = world.run(TABLE, "--add", new)
    lines = text.split("\n")
    yield expect("added", code == 0 and "`machine-lost`" in lines[5] and "a minute" in lines[6] and
                 len(lines) == len(TABLE.split("\n")) + 1, said + text)
    yield expect("then the same", world.run(text, "--check", LOG.replace(FULL, "") + new)[0] == 0,
                 said)
    yield expect("nothing to add", world.run(TABLE, "--add", "x\n")[:2] == (1, TABLE), said)
    yield expect("usage", world.run(TABLE, "", LOG)[0] == 64, "")


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, good, said in cases(World(folder)):
            results.append(good)
            if not good:
                print(f"{name}: {said}")
    print(f"the fault matrix: {sum(results)} of {len(results)} as expected")
    return 0 if all(results) and len(results) >= 35 else 1


if __name__ == "__main__":
    sys.exit(main())
