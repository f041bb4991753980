#!/usr/bin/env python3
"""Writes the results of the last run of tests/run.sh into docs/QUALITY.md.

quality.py [--reduced] [RESULTS.tsv]: reads build/test-logs/results.tsv (or the file named) and
replaces what stands between the two marks in docs/QUALITY.md. A run at reduced size is taken only
with --reduced; one that did not come to its end never. The file: lines "# name<TAB>text" about the
run, then for each test its stage, name, result, number of functions, seconds, and what it told.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENT = os.path.join(ROOT, "docs", "QUALITY.md")
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"
FACTS = {
    "machine": "machine",
    "system": "system",
    "libraries": "libraries",
    "redis": "Redis",
    "kafka": "Kafka",
    "compilers": "compilers",
    "debian13": "in the Debian 13 root",
}
STAGES = {  # in the order of the document; an unknown stage comes last, under its own name
    "check": "Builds and checks",
    "fast": "Unit and contract",
    "other": "Simulator, mutants, corpora, tidy",
    "integration": "Integration: real Kafka, Redis, RocksDB and daemon",
    "asan": "AddressSanitizer and UndefinedBehaviorSanitizer",
    "tsan": "ThreadSanitizer",
    "fuzz": "Fuzzers",
    "debian13": "Debian 13",
}


def fail(text):
    print(f"quality: {text}", file=sys.stderr)
    sys.exit(1)


def read(path):
    facts, rows = {}, []
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            if line.startswith("# "):
                facts[cells[0][2:]] = cells[1]
            elif len(cells) == 6:
                rows.append(cells)
            else:
                fail(f"{path}: not a line of results: {line!r}")
    return facts, rows


def cell(text):
    return text.replace("|", "\\|")


def table(rows):
    lines = ["| test | result | s | what it compared |", "| --- | --- | --- | --- |"]
    for _, name, result, functions, seconds, told in rows:
        if functions != "1":
            result += f" ({functions})"
        lines.append(f"| {cell(name)} | {cell(result)} | {float(seconds):.0f} | {cell(told)} |")
    return lines


def document(facts, rows):
    full = facts["size"] == "full"
    command = "sh tests/run.sh" + (" --full" if full else "")
    minutes = int(facts["seconds"]) / 60
    lines = [f"## {facts['begun']}: {facts['total']}", ""]
    lines += [f"`{command}` at {facts['commit']}, {minutes:.0f} minutes.", ""]
    lines += [f"- {title}: {facts[name]}" for name, title in FACTS.items() if name in facts]
    names = [*STAGES, *dict.fromkeys(row[0] for row in rows if row[0] not in STAGES)]
    for stage in names:
        of_stage = [row for row in rows if row[0] == stage]
        if of_stage:
            lines += ["", f"### {STAGES.get(stage, stage)}", "", *table(of_stage)]
    return "\n".join(lines) + "\n"


def main(arguments):
    reduced = "--reduced" in arguments
    paths = [word for word in arguments if word != "--reduced"]
    if len(paths) > 1 or any(word.startswith("-") for word in paths):
        print(__doc__, file=sys.stderr)
        return 64
    path = paths[0] if paths else os.path.join(ROOT, "build", "test-logs", "results.tsv")
    facts, rows = read(path)
    if "total" not in facts:
        fail(f"{path}: the run did not come to its end")
    if facts["size"] != "full" and not reduced:
        fail(f"{path}: a run at reduced size; tests/run.sh --full makes the one that is published")
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        fail(f"{DOCUMENT}: needs one line {BEGIN.strip()} and one {END.strip()}")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + document(facts, rows) + "\n" + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
