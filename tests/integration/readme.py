"""Runs the program texts of README.md, as an ad server would.

readme.py README count PORT PROFILE EXPECTATIONS: runs the Python text against the Redis on PORT.
    EXPECTATIONS holds a line for each question: user, window, ad and count ("unknown": None),
    divided by tabs. Prints every wrong answer; the exit code is 1 when there is one or no question.
readme.py README syntax LANGUAGE COMMAND...: gives the text of the language to the command as a
    file, whose exit code is ours.
"""

import re
import subprocess
import sys
import tempfile

import redis


def text_of(path, language):
    with open(path, encoding="utf-8") as file:
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", file.read(), re.M | re.S)
    if len(blocks) != 1:
        sys.exit(f"{path}: {len(blocks)} blocks of {language}, not one")
    return blocks[0]


def count(path, port, profile, expectations):
    text = text_of(path, "python")
    if text.count('profile="days"') != 1:
        sys.exit(f'{path}: profile="days" is not there')
    real = redis.Redis
    redis.Redis = lambda host, **options: real("127.0.0.1", int(port), **options)
    program = {}
    exec(compile(text.replace('profile="days"', f'profile="{profile}"'), path, "exec"), program)
    asked = wrong = 0
    with open(expectations, encoding="utf-8") as file:
        for line in file:
            user, window, ad, wanted = line.rstrip("\n").split("\t")
            got = program["count"](user, window, ad)
            asked += 1
            if str(got) != wanted.replace("unknown", "None"):
                wrong += 1
                print(f"{user} {window} {ad}: {got}, not {wanted}")
    print(f"{asked} counts, {wrong} wrong")
    return 1 if wrong or not asked else 0


def syntax(path, language, *command):
    text = text_of(path, language)
    if language == "go":
        text = "package p\n\n" + text
    suffix = {"go": ".go", "js": ".mjs"}[language]
    with tempfile.NamedTemporaryFile("w", suffix=suffix, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return subprocess.run([*command, file.name], check=False).returncode


if __name__ == "__main__":
    sys.exit({"count": count, "syntax": syntax}[sys.argv[2]](sys.argv[1], *sys.argv[3:]))
