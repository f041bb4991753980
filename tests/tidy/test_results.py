#!/usr/bin/env python3
"""What tests/run.sh counts in a log of ctest, and what tests/quality.py makes of it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOG = """
      Start  1: good
      Start  2: bad
1: [       OK ] one
1: [       OK ] two
1: result: 10 keys\tcompared
1: result: 2 | more
1: [  PASSED  ] 2 test(s).
 1/6 Test  #1: good .............   Passed    1.26 sec
2: [  ERROR   ] --- false
2: [  FAILED  ] three
2: [  PASSED  ] 1 test(s).
2: [  FAILED  ] 1 test(s), listed below:
 2/6 Test  #2: bad ..............***Failed    0.50 sec
      Start 13: some
13: skipped: no moon tonight
13: [  SKIPPED ] four
13: [  PASSED  ] 3 test(s).
13: [  SKIPPED ] 1 test(s), listed below:
 3/6 Test #13: some .............   Passed    0.10 sec
      Start  4: whole
4: skipped: no Maven
 4/6 Test  #4: whole ............***Skipped   0.01 sec
      Start  5: plain
 5/6 Test  #5: plain ............   Passed    7.00 sec
      Start  6: crash
 6/6 Test  #6: crash ............Subprocess aborted***Exception:   0.30 sec
"""
ROWS = """s good passed 2 1.26 10 keys compared; 2 | more
s bad failed 2 0.50 
s some passed, 1 skipped 4 0.10 no moon tonight
s whole skipped 1 0.01 no Maven
s plain passed 1 7.00 
s crash failed 1 0.30 
"""
FACTS = "# begun\t2026-01-02 03:04 UTC\n# size\tfull\n# commit\tabc\n# machine\ta big one\n"
END = "# seconds\t600\n# total\t7 passed, 2 failed, 2 skipped\n"


def expect(name, good, text=""):
    if not good:
        print(f"{name}: {text}")
    return good


def check_counts(folder):
    with open(os.path.join(TESTS, "run.sh"), encoding="utf-8") as file:
        function = re.search(r"^count_log\(\).*?^}", file.read(), re.M | re.S).group(0)
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as file:
        file.write(LOG)
    script = f"passed=0 failed=0 skipped=0 results=rows\n{function}\ncount_log s log\n"
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True)
    with open(os.path.join(folder, "rows"), encoding="utf-8") as file:
        rows = file.read()
    return [
        expect("the sum", done.stdout.endswith("s: 7 passed, 2 failed, 2 skipped\n"), done.stdout),
        expect("reasons", "s: some: skipped: no moon tonight" in done.stdout, done.stdout),
        expect("rows", rows.replace("\t", " ") == ROWS, rows),
    ]


def check_quality(folder):
    os.makedirs(os.path.join(folder, "tests"))
    os.makedirs(os.path.join(folder, "docs"))
    shutil.copy(os.path.join(TESTS, "quality.py"), os.path.join(folder, "tests"))
    document = os.path.join(folder, "docs", "QUALITY.md")
    with open(os.path.join(folder, "rows"), encoding="utf-8") as file:
        rows = file.read()
    with open(document, "w", encoding="utf-8") as file:
        file.write("head\n<!-- results: begin -->\nold\n<!-- results: end -->\ntail\n")

    def run(text, *options):
        path = os.path.join(folder, "results.tsv")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([sys.executable, os.path.join(folder, "tests", "quality.py"),
                               *options, path], capture_output=True, text=True)
        with open(document, encoding="utf-8") as file:
            return done.returncode, file.read()

    results = [expect("no end", run(FACTS + rows)[0] == 1)]
    reduced = (FACTS + rows + END).replace("full", "reduced")
    results.append(expect("reduced", run(reduced)[0] == 1))
    results.append(expect("untouched", "old" in run(reduced)[1]))
    results.append(expect("not a row", run(FACTS + "x\n" + END)[0] == 1))
    code, text = run(FACTS + rows + END)
    results.append(expect("written", code == 0 and "old" not in text, text))
    for part in ("head\n", "tail\n", "## 2026-01-02 03:04 UTC: 7 passed, 2 failed, 2 skipped\n",
                 "`sh tests/run.sh --full` at abc, 10 minutes.", "- machine: a big one\n",
                 "| good | passed (2) | 1 | 10 keys compared; 2 \\| more |\n",
                 "| whole | skipped | 0 | no Maven |\n", "| crash | failed | 0 |  |\n"):
        results.append(expect("the document", part in text, f"{part!r} is not in\n{text}"))
    results.append(expect("again", run(FACTS + rows + END)[1] == text))
    results.append(expect("reduced, on demand", run(reduced, "--reduced")[0] == 0))
    return results


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = check_counts(folder) + check_quality(folder)
    print(f"results of a run: {sum(results)} of {len(results)} as expected")
    return 0 if all(results) and len(results) >= 15 else 1


if __name__ == "__main__":
    sys.exit(main())
