#!/usr/bin/env python3
"""Plants one violation of each kind in a small tree: tidy.py must find it, and nothing else."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

TIDY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tidy.py")
CLANG = os.path.join(os.path.dirname(TIDY), "clang.py")
DOCS = os.path.join(os.path.dirname(TIDY), "docs.py")
CLEAN = {
    "src/core/good.c": '#include "fcap/good.h"\n\n#include <string.h>\n\nint good(const char *text)\n'
                       '{\n    /* sleep(1) and atoi(x) in a comment are fine. */\n'
                       '    return strcmp(text, "time(NULL)") == 0 ? 1 : 0;\n}\n',
    "src/adapters/store_rocksdb.c": "#include <rocksdb/c.h>\n",
    "src/adapters/source_kafka.c": "#include <librdkafka/rdkafka.h>\n",
    "src/adapters/dead_letters_kafka.c": "#include <librdkafka/rdkafka.h>\n",
    "src/adapters/config_table.c": '#define FAMILY(name) \\\n    A("rocksdb." name ".size")\n'
                                   'const int keys[] = {\n    TEXT("profile",\n'
                                   '    NUMBER("kafka.topic",\n    {"http.listen",\n'
                                   '    FAMILY("users", 1)\n};\n',
    "config/fcapd.yaml": "profile: x\nkafka:\n  # topic: y\nhttp:\n  listen: z\n"
                         "rocksdb:\n  users:\n    size: 1\n",
    "docs/CONFIG.md": "`profile` `kafka.topic` `http.listen` `rocksdb.users.size`\n",
    "include/fcap/good.h": "int good(const char *text);\n",
}
BODY = "    x++;\n"
# Words that tidy looks for in every file, this one too, stand here in pieces.
PLANTED = [  # what is found, path, text
    ("hiredis.h may be included by", "src/daemon/run.c", "#include <hiredis.h>\n"),
    ("hiredis/hiredis.h may be included by", "src/main.c", "#include <hiredis/hiredis.h>\n"),
    ("librdkafka/rdkafka.h may be included by", "src/adapters/sink_redis.c",
     "#include <librdkafka/rdkafka.h>\n"),
    ("rocksdb/c.h may be included by", "include/fcap/bad.h", "#include <rocksdb/c.h>\n"),
    ("yaml.h may be included by", "src/adapters/http.c", "#include <yaml.h>\n"),
    ("yajl/yajl_parse.h may be included by", "src/adapters/decode_json.c",
     "#include <yajl/yajl_parse.h>\n"),
    ("yyjson.h may be included by", "src/adapters/decode_json.c", "#include <yyjson.h>\n"),
    ("microhttpd.h may be included by", "src/daemon/http.c", "#include <microhttpd.h>\n"),
    ("the core may not include pthread.h", "src/core/bad.c", "#include <pthread.h>\n"),
    ("a function of 71 lines", "src/long.c", "void f(int x)\n{\n" + BODY * 71 + "}\n"),
    ("601 lines, more than 600", "bench/long.c", "int x;\n" * 601),
    ("101 columns", "tests/unit/wide.c", "/* " + "x" * 98 + "\n"),
    ("FIX" + "ME: unfinished", "src/a.c", "/* FIX" + "ME: later */\n"),
    ("TO" + "DO: unfinished", "docs/a.md", "TO" + "DO write this\n"),
    ("XX" + "X: unfinished", "tests/a.sh", "# XX" + "X\n"),
    ("/wo" + "rk/: has no place here", "docs/a.md", "see /wo" + "rk/shared\n"),
    ("pypi" + ".org: has no place here", "tests/a.sh", "curl https://pypi" + ".org/x\n"),
    ("deb.debian" + ".org: has no place here", "tests/b.sh", "http://deb.debian" + ".org\n"),
    ("the key kafka.topic is missing", "config/fcapd.yaml",
     "profile: x\nhttp:\n  listen: z\nrocksdb:\n  users:\n    size: 1\n"),
    ("the key rocksdb.users.size is missing", "docs/CONFIG.md",
     "`profile` `kafka.topic` `http.listen`\n"),
    ("notes.txt:1: nothing but the known", "notes.txt", "x\n"),
    ("tools:1: nothing but the known", "tools/sub/a.py", "x = 1\n"),
    ("no keys found", "src/adapters/config_table.c", "int none;\n"),
]
PLANTED += [(f"{name}() is banned", "src/core/call.c", f"int f(void)\n{{\n    return {name}(0);\n}}\n")
            for name in ("strcpy", "strcat", "sprintf", "vsprintf", "gets", "atoi", "atol", "atoll",
                         "strtok", "assert", "sleep", "usleep", "time", "gettimeofday", "rand",
                         "srand", "random")]
ALLOWED = [  # near misses
    ("src/ok.c", "void f(int x)\n{\n" + BODY * 70 + "}\n" + "int x;\n" * 527),
    ("src/ok.c", "/* clang-format off */\n/* " + "x" * 98 + "\n/* clang-format on */\n"),
    ("src/ok.c", "void f(void)\n{\n    clock->time(clock);\n    wall_time(1);\n}\n"),
    ("tests/ok.c", "#include <hiredis.h>\nvoid f(void)\n{\n    usleep(1);\n}\n"),
    ("tests/ok.c", 'char folder[] = "/tmp/fcap-XXXXXX";\n'),
    (".editorconfig", "root = true\n"),
    (".github/pull.md", "x\n"),
    ("build/made.txt", "x\n"),
    ("LICENSE", "x\n"),
    ("docs/ok.md", "the framework/ folder; repo.mavenlike; patchwork/x\n"),
]


def run_tidy(files, *arguments):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, TIDY, "--root", root, *arguments],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def expect(what, code, output, finding):
    findings = 0 if finding is None else 1
    good = code == findings and f" {findings} findings" in output and (finding or "") in output
    if not good:
        print(f"{what}: exit code {code}, expected {finding or 'nothing'}:\n{output}")
    return good


def check_symbols():
    """A library that calls what the core may not, and one that does not."""
    good = True
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    for body, finding in (("return (int)strlen(s);", None),
                          ("return (int)write(1, s, 1);", "the core calls write,")):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "a.c")
            with open(source, "w", encoding="utf-8") as file:
                file.write("#include <string.h>\n#include <unistd.h>\n"
                           f"int f(const char *s)\n{{\n    {body}\n}}\n")
            subprocess.run([compiler, "-O0", "-fno-builtin", "-c", "a.c"], cwd=folder, check=True)
            subprocess.run(["ar", "rc", "liba.a", "a.o"], cwd=folder, check=True)
            code, output = run_tidy(CLEAN, "--core-library", os.path.join(folder, "liba.a"))
            good = expect("symbols", code, output, finding) and good
    return good


def check_docs():
    """docs.py on a copy of the real documents, with one broken promise each."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(TIDY)))
    good = True
    for path, text, finding in (
            ("README.md", "", None),
            ("README.md", "[x](docs/GONE.md)\n", "no such file: docs/GONE.md"),
            ("docs/HACKING.md", "`src/core/gone.c`\n", "no such file: src/core/gone.c"),
            ("docs/OPERATING.md", "`fcapd_gone_total`\n", "no such metric: fcapd_gone_total"),
            ("docs/DATA.md", "`redis.gone`\n", "no such key: redis.gone"),
            ("docs/OPERATING.md", "`fcapd vanish -c FILE`\n", "no such command: fcapd vanish"),
            ("docs/OPERATING.md", "`--gone`\n", "no such option: --gone"),
            ("docs/OPERATING.md", "## Reasons of /readyz\n| `the moon is away` | | |\n## x\n",
             "the tables of reasons and stalls are not there"),
            ("docs/OPERATING.md", "## Metrics and alerts\n| odd | `fcapd_ready` | x |\n## x\n",
             "an alert without a threshold: odd"),
            ("docs/OPERATING.md", "## Metrics and alerts\n| odd | `x > 1` | x |\n## x\n",
             "no alert for fcapd_checkpoint_scrub_damaged")):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("src", "tests", "include", "bench", "config"):
                os.symlink(os.path.join(root, name), os.path.join(folder, name))
            shutil.copytree(os.path.join(root, "docs"), os.path.join(folder, "docs"))
            for name in ("README.md", "LICENSE"):
                shutil.copy(os.path.join(root, name), folder)
            with open(os.path.join(folder, path), "r+", encoding="utf-8") as file:
                old = file.read()
                file.seek(0)
                file.write(text + old)
            done = subprocess.run([sys.executable, DOCS, "--root", folder], capture_output=True,
                                  text=True)
            lines = [line for line in done.stdout.splitlines() if not line.startswith("result")]
            wanted = [] if finding is None else [finding]
            if done.returncode != len(wanted) or not all(f in "\n".join(lines) for f in wanted):
                print(f"docs.py on {text!r} in {path}: exit code {done.returncode}\n{done.stdout}")
                good = False
    return good


def check_clang():
    """clang.py finds a warning in one of two files; and no files are no success."""
    if not shutil.which("clang"):
        print("skipped: clang.py needs clang")
        return True
    good = True
    for body, code in (("return 0;", 0), ("int unused;\n    return 0;", 1), (None, 1)):
        with tempfile.TemporaryDirectory() as folder:
            entries = []
            for name, text in (("a.c", "return 1;"), ("b.c", body)) if body else ():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(f"int {name[0]}(void);\nint {name[0]}(void)\n{{\n    {text}\n}}\n")
                entries.append({"directory": folder, "file": name,
                                "command": f"gcc -Wall -Wno-format-truncation -o {name}.o -c {name}"})
            with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
                json.dump(entries, file)
            done = subprocess.run([sys.executable, CLANG, folder], capture_output=True, text=True)
            if done.returncode != code or os.path.exists(os.path.join(folder, "a.c.o")):
                print(f"clang.py on {body!r}: exit code {done.returncode}\n{done.stdout}")
                good = False
    return good


def main():
    results = [expect("the clean tree", *run_tidy(CLEAN), None)]
    for finding, path, text in PLANTED:
        results.append(expect(path, *run_tidy({**CLEAN, path: text}), finding))
    for path, text in ALLOWED:
        results.append(expect(path, *run_tidy({**CLEAN, path: text}), None))
    results.append(check_symbols())
    results.append(check_clang())
    results.append(check_docs())
    print(f"tidy's own test: {sum(results)} of {len(results)} as expected")
    sys.exit(0 if all(results) and len(PLANTED) > 30 else 1)


main()
