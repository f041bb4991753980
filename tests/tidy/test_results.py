#!/usr/bin/env python3
"""What tests/run.sh counts in a log of ctest and tells of its failures, and what tests/quality.py
makes of it."""

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
1: fault: state-full | a | b | c | d
1: [  PASSED  ] 2 test(s).
 1/6 Test  #1: good .............   Passed    1.26 sec
2: [  ERROR   ] --- false
2: [  FAILED  ] three
2: fault: state-gone | a | b | c | d
2: [  PASSED  ] 1 test(s).
2: [  FAILED  ] 1 test(s), listed below:
 2/6 Test  #2: bad ..............***Failed    0.50 sec
      Start 13: some
13: skipped: no moon tonight
13: [  SKIPPED ] four
13: fault: redis-gone | a | b | c | d
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
BAD = """--- s: bad ..............***Failed    0.50 sec
    [  ERROR   ] --- false
    [  FAILED  ] three
"""
CRASH = "--- s: crash ............Subprocess aborted***Exception:   0.30 sec\n"
ROWS = """s good passed 2 1.26 10 keys compared; 2 | more
s bad failed 2 0.50 
s some passed, 1 skipped 4 0.10 no moon tonight
s whole skipped 1 0.01 no Maven
s plain passed 1 7.00 
s crash failed 1 0.30 
"""
FAULTS = "fault: state-full | a | b | c | d\nfault: redis-gone | a | b | c | d\n"
FACTS = "# begun\t2026-01-02 03:04 UTC\n# size\tfull\n# commit\tabc\n# machine\ta big one\n"
END = "# seconds\t600\n# total\t7 passed, 2 failed, 2 skipped\n"


def expect(name, good, text=""):
    if not good:
        print(f"{name}: {text}")
    return good


def run_counts(folder, log, ci=""):
    """count_log and, behind the line "end", what the end of a run says of failures."""
    with open(os.path.join(TESTS, "run.sh"), encoding="utf-8") as file:
        text = file.read()
    parts = [re.search(pattern, text, re.M | re.S).group(0) for pattern in (
        r"^failures=0.*?^# --- counting", r"^count_log\(\).*?^}")]
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as file:
        file.write(log)
    shutil.rmtree(os.path.join(folder, "failures"), ignore_errors=True)
    os.mkdir(os.path.join(folder, "failures"))
    script = "\n".join(["passed=0 failed=0 skipped=0 results=rows faults=faults logs=.", *parts,
                        "count_log s log", "echo end", "print_failures"])
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "CI": ci}).stdout.partition("end\n")


def check_counts(folder):
    counts, _, end = run_counts(folder, LOG)
    with open(os.path.join(folder, "rows"), encoding="utf-8") as file:
        rows = file.read()
    with open(os.path.join(folder, "faults"), encoding="utf-8") as file:
        faults = file.read()
    return [
        expect("the sum", counts.endswith("s: 7 passed, 2 failed, 2 skipped\n"), counts),
        expect("reasons", "s: some: skipped: no moon tonight" in counts, counts),
        expect("rows", rows.replace("\t", " ") == ROWS, rows),
        expect("faults of what passed", faults == FAULTS, faults),
        expect("why", BAD in end and CRASH in end and "moon" not in end, end),
    ]


def check_failures(folder):
    """The end fits into the last lines of a run, with the reason of each failure."""
    end = run_counts(folder, LOG, ci="true")[2]
    results = [expect("skips", "skipped: no moon" in end and "skipped: no Maven" in end, end)]
    noise = "".join(f"7: noise {i}\n7: ...\n" for i in range(500))
    error = "7: [  ERROR   ] --- it was 3:\n"
    place = "7: [   LINE   ] --- test_long.c:9: error: Failure!\n"
    result = "      Start  7: long\n 1/1 Test  #7: long ....***Failed  9.9 sec\n"
    for text in (noise + error + noise + place + noise, noise + error + place,
                 error + noise + place):
        end = run_counts(folder, text + result)[2]
        results.append(expect("a long one", "it was 3" in end and "test_long.c:9" in end and
                              20 < end.count("\n") < 45, end))
    end = run_counts(folder, noise + "7: the last\n" + result)[2]
    results.append(expect("killed", "the last\n" in end and 20 < end.count("\n") < 45, end))
    for count in (5, 60, 400):
        log = "".join((noise[-800:] + error + result).replace("7: ", f"{1000 + i}: ")
                      for i in range(count))
        end = run_counts(folder, log)[2]
        results.append(expect("many", end.count("--- s: long") == min(count, 150) and
                              end.count("it was 3") == (count if count < 75 else 0) and
                              end.count("\n") <= 150, end))
    return results


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
        results = check_counts(folder) + check_quality(folder) + check_failures(folder)
    print(f"results of a run: {sum(results)} of {len(results)} as expected")
    return 0 if all(results) and len(results) >= 25 else 1


if __name__ == "__main__":
    sys.exit(main())
