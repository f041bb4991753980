"""Compiles every file of a build folder once more with clang, for its warnings only.

clang.py FOLDER [JOBS]: FOLDER holds compile_commands.json of a gcc build; nothing is written. A
warning is an error. Prints what clang says and, last, a line "result: ..." with the number of
files; the exit code is 1 when a file is not clean.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

# gcc's own; clang does not know them.
LEFT_OUT = ("-Wno-format-truncation",)


def command_of(entry):
    words = entry.get("arguments") or shlex.split(entry["command"])
    words = [word for word in words[1:] if word not in LEFT_OUT]
    if "-o" in words:  # Nothing is written.
        at = words.index("-o")
        del words[at : at + 2]
    return ["clang", *words, "-fsyntax-only", "-Werror"]


def compile_one(entry):
    done = subprocess.run(command_of(entry), cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], done.returncode, done.stdout + done.stderr


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 64
    with open(os.path.join(arguments[1], "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    jobs = int(arguments[2]) if len(arguments) == 3 else os.cpu_count()
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, code, text in pool.map(compile_one, entries):
            if code != 0:
                bad += 1
                print(f"{name}:\n{text}")
    print(f"result: {len(entries)} files compiled, {bad} with a warning")
    return 1 if bad or not entries else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
