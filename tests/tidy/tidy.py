#!/usr/bin/env python3
"""The rules of this code base that no compiler checks: tidy.py [--core-library libfcap_core.a]
[--root FOLDER] [--nm PROGRAM]. Prints one line for each finding; exit code 1 when there is one."""
import argparse
import os
import re
import subprocess
import sys

FUNCTION_LINES, FILE_LINES, COLUMNS = 70, 600, 100

# What stands at the top of the tree, beside names with a dot and what git ignores.
TOP = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "bench", "config", "docs",
       "include", "src", "tests"}

# Header of a dependency -> the only sources that may include it.
OWNERS = [
    (r"librdkafka/|rdkafka", r"src/(adapters/(source_|dead_letters_)?kafka|lab/)"),
    (r"rocksdb/", r"src/adapters/store_rocksdb"),
    (r"hiredis", r"src/(adapters/(sink_redis|redis_)|lab/)"),
    (r"yaml\.h", r"src/adapters/config_"),
    (r"yajl/", r"src/(adapters/decode_yajl|demo/json)"),
    (r"yyjson\.h", r"src/adapters/decode_yyjson"),
    (r"microhttpd\.h", r"src/adapters/http"),
]
# All that the core may know of the outside.
CORE_HEADERS = re.compile(
    r"fcap/|std(arg|bool|def|int|io|lib|align|noreturn)\.h$|string\.h$|inttypes\.h$|limits\.h$")
CORE_SYMBOLS = set("""memcpy memmove memset memcmp memchr strlen strcmp strncmp strchr strrchr
    malloc calloc realloc free qsort bsearch snprintf vsnprintf fprintf fwrite fputc fputs fflush
    stderr abort __stack_chk_fail _GLOBAL_OFFSET_TABLE_""".split())
# Banned call -> what to call instead; the second table is for what ships only.
BANNED = {"strcpy": "memcpy or snprintf", "strcat": "snprintf", "sprintf": "snprintf",
          "vsprintf": "vsnprintf", "gets": "getline", "atoi": "strtol", "atol": "strtol",
          "atoll": "strtoll", "strtok": "strcspn", "assert": "FCAP_ASSERT"}
BANNED_SHIPPED = {"sleep": "a wait with a deadline", "usleep": "a wait with a deadline",
                  "time": "the clock port", "gettimeofday": "the clock port",
                  "rand": "a seeded generator", "srand": "a seeded generator",
                  "random": "a seeded generator"}
# Written in pieces, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(["FIX" + "ME", "TO" + "DO", "XX" + "X"]) + r")\b")
PLACES = ["deb debian org", "security debian org", "snapshot debian org", "registry npmjs",
          "repo maven", "repo1 maven", "pypi org", "crates io", "proxy golang"]
FORBIDDEN = re.compile("|".join(
    [re.escape("/" + word + "/") for word in ("work", "farm")] +
    [r"\b" + place.replace(" ", r"\.") + r"\b" for place in PLACES]))

findings = []


def say(path, line, text):
    findings.append(f"{path}:{line}: {text}")


def list_files(root):
    """Every file that belongs to the tree: what git does not ignore, or all but build folders."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                          "--exclude-standard"], capture_output=True, check=False)
    inside = subprocess.run(["git", "-C", root, "rev-parse", "--show-prefix"],
                            capture_output=True, check=False)
    if git.returncode == 0 and inside.stdout.strip() == b"":
        paths = git.stdout.decode().split("\0")
    else:
        paths = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, _, names in os.walk(root) for name in names]
        paths = [p for p in paths if not re.match(r"(build[^/]*|\.git)/", p)]
    return sorted(p for p in paths if p and os.path.isfile(os.path.join(root, p)))


def strip(text):
    """The same lines without comments and without what stands in quotes."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match):
        kept = match.group(0)
        return '""' if kept[0] == '"' else "\n" * kept.count("\n") + " "
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def check_includes(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match or not re.match(r"(src|include|bench)/", path):
            continue
        header = match.group(2)
        for pattern, owner in OWNERS:
            if re.match(pattern, header) and not re.match(owner, path):
                say(path, number, f"{header} may be included by {owner}* only")
        own = match.group(1) == '"' and os.path.dirname(header) == ""
        if path.startswith("src/core/") and not own and not CORE_HEADERS.match(header):
            say(path, number, f"the core may not include {header}: libc and fcap/ only")


def check_shape(path, text):
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) > FILE_LINES:
        say(path, len(lines), f"{len(lines)} lines, more than {FILE_LINES}: is there a second room?")
    start, by_hand = 0, False
    for number, line in enumerate(lines, 1):
        by_hand = "clang-format off" in line or (by_hand and "clang-format on" not in line)
        if len(line) > COLUMNS and not by_hand:
            say(path, number, f"{len(line)} columns, more than {COLUMNS}")
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start - 1 > FUNCTION_LINES:
                say(path, start, f"a function of {number - start - 1} lines, more than {FUNCTION_LINES}")
            start = 0


def check_calls(path, text):
    banned = dict(BANNED)
    if re.match(r"(src|include)/", path):
        banned.update(BANNED_SHIPPED)
    call = re.compile(r"(?<![\w.>])(" + "|".join(banned) + r")\s*\(")
    for number, line in enumerate(strip(text).split("\n"), 1):
        for match in call.finditer(line):
            say(path, number, f"{match.group(1)}() is banned: use {banned[match.group(1)]}")


def check_words(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in ((UNFINISHED, "unfinished"), (FORBIDDEN, "has no place here")):
            match = pattern.search(line)
            if match:
                say(path, number, f"{match.group(0)}: {what}")


def check_top(paths):
    for name in sorted({path.split("/")[0] for path in paths}):
        if name not in TOP and not name.startswith("."):
            say(name, 1, "nothing but the known folders and files stands at the top of the tree")


def yaml_keys(text):
    """Dotted paths of a block-style file; a key behind one '#' counts: it shows a default."""
    keys, above = set(), []
    for line in text.split("\n"):
        match = re.match(r"( *)(?:# ?)?( *)([a-z0-9_]+):(?: |$)", line)
        if match:
            depth = len(match.group(1)) + len(match.group(2))
            while above and above[-1][0] >= depth:
                above.pop()
            above.append((depth, match.group(3)))
            keys.add(".".join(name for _, name in above))
    return keys


def check_config(root):
    """Every key of the table stands in the sample and in the reference."""
    table = os.path.join(root, "src/adapters/config_table.c")
    if not os.path.exists(table):
        return
    text = open(table, encoding="utf-8").read()
    keys = re.findall(r'^    (?:[A-Z]+\(|\{)"([a-z0-9_.]+)",', text, flags=re.MULTILINE)
    families = re.findall(r'^    FAMILY\("([a-z0-9_]+)"', text, flags=re.MULTILINE)
    keys = [k for k in keys if k not in families]
    keys += [f"rocksdb.{f}{k}" for f in families for k in re.findall(r'"rocksdb\." name "(\.\w+)"', text)]
    if len(keys) < 2:
        say("src/adapters/config_table.c", 1, "no keys found: tidy no longer reads this table")
    for path, reader in (("config/fcapd.yaml", yaml_keys),
                         ("docs/CONFIG.md", lambda t: set(re.findall(r"`([a-z0-9_.]+)`", t)))):
        full = os.path.join(root, path)
        known = reader(open(full, encoding="utf-8").read()) if os.path.exists(full) else set(keys)
        for key in keys:
            if key not in known:
                say(path, 1, f"the key {key} is missing")


def check_core(library, nm):
    listing = subprocess.run([nm, "-P", library], capture_output=True, text=True, check=True).stdout
    symbols = [line.split() for line in listing.split("\n") if len(line.split()) >= 2]
    defined = {s[0] for s in symbols if s[1] not in "Uw"}
    for name in sorted({s[0] for s in symbols if s[1] in "Uw"} - defined - CORE_SYMBOLS):
        say(os.path.basename(library), 0, f"the core calls {name}, which is not on its short list")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    parser.add_argument("--core-library")
    parser.add_argument("--nm", default="nm")
    options = parser.parse_args()
    paths = list_files(options.root)
    for path in paths:
        data = open(os.path.join(options.root, path), "rb").read()
        if b"\0" in data or "/corpus/" in path:
            continue
        text = data.decode("utf-8", "replace")
        check_words(path, text)
        if re.match(r"(src|include|tests|bench)/.*\.[ch]$", path):
            for check in (check_includes, check_shape, check_calls):
                check(path, text)
    check_top(paths)
    check_config(options.root)
    if options.core_library:
        check_core(options.core_library, options.nm)
    print("\n".join(findings + [f"tidy: {len(paths)} files, {len(findings)} findings"]))
    sys.exit(1 if findings or not paths else 0)


main()
