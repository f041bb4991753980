#!/usr/bin/env python3
"""What the documents promise must be there: docs.py --root DIR.

Checked in README.md and docs/: links and paths of the tree; names of metrics against
docs/METRICS.md; keys of the configuration against docs/CONFIG.md; commands and options of fcapd
against the sources; in docs/OPERATING.md the reasons and stalls of /readyz against the texts in the
sources, and the alerts. Generated documents are the measure for the others, so they are compared elsewhere.
"""

import argparse
import glob
import os
import re
import sys

GENERATED = ("docs/CONFIG.md", "docs/METRICS.md")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def sources(root):
    """All texts of src: string literals that stand next to each other are one."""
    text = ""
    for path in sorted(glob.glob(os.path.join(root, "src/**/*.[ch]"), recursive=True)):
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return re.sub(r'"\s*\n\s*"', "", text)


def code_spans(text):
    """Inline code, outside of indented and fenced blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    return re.findall(r"`([^`\n]+)`", text)


def check_links(root, path, text):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not os.path.exists(
                os.path.join(root, os.path.dirname(path), target)):
            yield f"{path}: no such file: {target}"


def check_paths(root, path, text):
    for span in code_spans(text):
        for word in re.findall(r"(?<![\w./-])(?:src|tests|include|docs|bench|config)/[\w./-]*\w", span):
            if not os.path.exists(os.path.join(root, word)) and not glob.glob(
                    os.path.join(root, word + ".*")):
                yield f"{path}: no such file: {word}"


def check_metrics(path, text, known):
    for name in re.findall(r"\b(?:fcapd|process)_[a-z](?:[a-z0-9_]*[a-z0-9])?\b(?!_)", text):
        if name not in known and not any(other.startswith(name + "_") for other in known):
            yield f"{path}: no such metric: {name}"


def check_alerts(path, text, known):
    """Each alert compares a metric that exists, by its whole name; none of the checkpoints' is missing."""
    part = re.search(r"^## Metrics and alerts.*?(?=^## )", text, re.M | re.S)
    rows = re.findall(r"^\| ([a-z][^|]*) \| ([^|]*) \| ([^|]*) \|$", part.group(0), re.M) if part else []
    for name, expression, _ in rows:
        found = re.findall(r"\b(?:fcapd|process)_[a-z0-9_]+", expression)
        if not found:
            yield f"{path}: an alert without a metric: {name}"
        for metric in found:
            if metric not in known:
                yield f"{path}: no such metric in the alert {name!r}: {metric}"
        if not re.search(r"[<>]|==|grows|above|rate\(", expression):
            yield f"{path}: an alert without a threshold: {name}"
    for word in ("age", "failing", "materialization_behind", "holes", "stopped", "scrub_damaged"):
        if not any(f"fcapd_checkpoint_{word}" in expression for _, expression, _ in rows):
            yield f"{path}: no alert for fcapd_checkpoint_{word}"


def check_keys(path, text, known):
    sections = {key.split(".")[0] for key in known if "." in key}
    for span in code_spans(text):
        word = re.match(r"([a-z_]+(?:\.[a-z_0-9]+)+)(?=$|[:=. ])", span)
        name = word.group(1) if word else ""
        if name.split(".")[0] in sections and not name.endswith((".c", ".h", ".yaml")):
            is_known = name in known or any(key.startswith(name + ".") for key in known)
            if not is_known and not name.startswith("kafka.librdkafka."):
                yield f"{path}: no such key: {name}"


def check_commands(path, text, code):
    for command in re.findall(r"\bfcapd ([a-z]+)(?: |`|$)", "\n".join(code_spans(text)), re.M):
        if f'{{"{command}", "' not in code:
            yield f"{path}: no such command: fcapd {command}"
    for option in re.findall(r"`(?:fcapd [^`]*?)?(--[a-z-]+)", text):
        if f'"{option}"' not in code and f"{option} " not in code:
            yield f"{path}: no such option: {option}"


def check_table_of_commands(path, text, code):
    for command in re.findall(r'^    {"([a-z]+)", "[^"]*",', code, re.M):
        if f"| `fcapd {command}" not in text:
            yield f"{path}: fcapd {command} is not described"


def check_reasons(path, text, code):
    """The first column of the two tables: what is fixed in each text must be in the sources."""
    part = re.search(r"^## Reasons of /readyz.*?(?=^## )", text, re.M | re.S)
    rows = re.findall(r"^\| `([^`]+)` \|", part.group(0), re.M) if part else []
    if len(rows) < 15:
        yield f"{path}: the tables of reasons and stalls are not there"
    for row in rows:
        for piece in re.split(r"\.\.\.|<[^>]*>|\b[NM]\b|[()]", row):
            if piece.strip() and piece.strip() not in code:
                yield f"{path}: no such text in the sources: {piece.strip()!r} of {row!r}"


def check(root):
    code = sources(root)
    metrics = set(re.findall(r"^\| `([a-z0-9_]+)`", read(root, "docs/METRICS.md"), re.M))
    keys = set(re.findall(r"^\| `([a-z_0-9.<>]+)`", read(root, "docs/CONFIG.md"), re.M))
    paths = ["README.md"] + sorted(
        os.path.relpath(path, root)
        for path in glob.glob(os.path.join(root, "docs/**/*.md"), recursive=True))
    for path in paths:
        text = read(root, path)
        yield from check_links(root, path, text)
        if path not in GENERATED:
            yield from check_paths(root, path, text)
            yield from check_metrics(path, text, metrics)
            yield from check_keys(path, text, keys)
        if path in ("README.md", "docs/OPERATING.md"):
            yield from check_commands(path, text, code)
        if path == "docs/OPERATING.md":
            yield from check_table_of_commands(path, text, code)
            yield from check_reasons(path, text, code)
            yield from check_alerts(path, text, metrics)
    if len(paths) < 5 or len(metrics) < 50 or len(keys) < 30:
        yield "docs.py found too little to check"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    findings = list(check(parser.parse_args().root))
    for finding in findings:
        print(finding)
    print(f"result: {len(findings)} promises of the documents that are not kept")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
