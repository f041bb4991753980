#!/bin/sh
# Builds everything and runs every test: tests/run.sh [--full]
#
#   --full   everything at full size (FCAP_TEST_FULL=1); more than an hour
#
# Installs the Debian packages it lacks when it is root, otherwise names them. Test programs,
# labels and sizes come from CMake; nothing here names a test. Logs: build/test-logs/, with
# results.tsv, a line for each test, from which tests/quality.py makes docs/QUALITY.md, and faults,
# what the tests that passed have proved of faults, with which tests/faults.py compares the fault
# matrix of docs/OPERATING.md. At the end each failed one says once more why. The last line is
# "N passed, N failed" (", N skipped" when any; with CI=true a skip is a failure), counted in test
# functions; a check that is no cmocka program counts as one.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
top=$(dirname -- "$here")
cd "$top" || exit 1

FCAP_TEST_FULL=
timeout_s=600 fuzz_s=5
for argument; do
    case $argument in
    --full) FCAP_TEST_FULL=1 timeout_s=14400 fuzz_s=60 ;;
    *) echo "usage: tests/run.sh [--full]" >&2; exit 64 ;;
    esac
done
jobs=$(nproc)
FCAP_TEST_JOBS=$jobs
FCAP_TEST_TIMEOUT=$timeout_s
if [ -z "${FCAP_SHARED_DATA:-}" ] && [ -d "$top/../shared/data" ]; then
    FCAP_SHARED_DATA=$(CDPATH='' cd -- "$top/../shared/data" && pwd)
fi
FCAP_SHARED_DATA=${FCAP_SHARED_DATA:-}
export FCAP_TEST_FULL FCAP_TEST_JOBS FCAP_TEST_TIMEOUT FCAP_SHARED_DATA

logs=$top/build/test-logs
rm -rf "$logs/failures"
mkdir -p "$logs/failures"
results=$logs/results.tsv
faults=$logs/faults
: >"$faults"
begun=$(date +%s)
printf '# %s\t%s\n' begun "$(date -u '+%Y-%m-%d %H:%M UTC')" \
    size "$([ -n "$FCAP_TEST_FULL" ] && echo full || echo reduced)" \
    commit "$(git describe --always --dirty --exclude '*' --abbrev=12 2>/dev/null ||
        echo unknown)" >"$results"
# Short, for the paths of sockets; what a test leaves behind goes with it.
TMPDIR=$(mktemp -d /tmp/fcap-run-XXXXXX)
export TMPDIR
passed=0 failed=0 skipped=0
child=
broker=

# --- what was started is stopped, whatever happens --------------------------------------------

# Everything runs in a session of its own, so that its children go with it.
signal_session() { # SIGNAL PID
    kill -s "$1" -- "-$2" 2>/dev/null
}
stop_session() {
    [ -n "$1" ] && signal_session TERM "$1" || return 0
    tries=0
    while signal_session 0 "$1"; do
        tries=$((tries + 1))
        [ $tries -ne 100 ] || signal_session KILL "$1"
        [ $tries -lt 120 ] || break
        sleep 0.1
    done
}
finish() {
    trap - EXIT INT TERM HUP
    stop_session "$child"
    stop_session "$broker"
    rm -rf "$TMPDIR"
    print_failures
    if [ "${CI:-}" = true ]; then
        failed=$((failed + skipped)) skipped=0
    fi
    tail=
    [ $skipped -eq 0 ] || tail=", $skipped skipped"
    took=$(($(date +%s) - begun))
    printf '# %s\t%s\n' seconds $took total "$passed passed, $failed failed$tail" >>"$results"
    echo "took $((took / 60)) min $((took % 60)) s"
    echo "$passed passed, $failed failed$tail"
    # A plain exit would give the code from before the trap.
    [ $failed -eq 0 ] && [ $passed -gt 0 ] && exit 0
    exit 1
}
trap finish EXIT
trap 'echo "interrupted"; failed=$((failed + 1)); finish' INT TERM HUP

# run LOG COMMAND...: its exit code, output in the log.
run() {
    log=$1
    shift
    setsid "$@" >"$log" 2>&1 </dev/null &
    child=$!
    wait "$child"
    code=$?
    child=
    return $code
}

# --- why something failed -----------------------------------------------------------------------

failures=0
failures_lines=150 # all of them together, at the end
failure_lines=40   # one of them

# Keeps for the end what a failed one had to say.
failure() { # TITLE COMMAND...: the command prints it
    failures=$((failures + 1))
    title=$1
    shift
    { printf '%s\n' "$title" && "$@"; } >"$logs/failures/$(printf '%03d' $failures)"
}

# From before the first line that tells of a failure to behind the last, or the end when none does.
excerpt() { # FILE LINES
    tail -n +2 "$1" | cut -c 1-400 | awk -v lines="$2" '
        { text[NR] = $0 }
        /\[  ERROR   \]|: error: |^FAILED: |Sanitizer: |runtime error: |^skipped: / {
            if (!first) first = NR
            last = NR
        }
        END {
            if (!first) first = last = NR
            half = int((lines + 1) / 2)
            from = first - int(lines / 8)
            to = last + int(lines / 8)
            if (to > NR) to = NR
            if (from > to - lines) from = to - lines + 1
            if (from < 1) from = 1
            for (i = from; i <= to; i++) {
                if (i < from + half || i > to - half) print "    " text[i]
                else if (i == from + half) print "    ..."
            }
        }'
}

print_failures() {
    [ $failures -gt 0 ] || return 0
    lines=$((failures_lines / failures - 1))
    [ $lines -lt $failure_lines ] || lines=$failure_lines
    for file in "$logs"/failures/*; do
        printf -- '--- %s\n' "$(head -n 1 "$file")"
        [ $lines -le 0 ] || excerpt "$file" $lines
    done | head -n $failures_lines
}

# --- counting -----------------------------------------------------------------------------------

# What a program has to say beyond passed or failed: its lines "result: ..." (what was compared)
# and, when it cannot be run, "skipped: ..." (why).
told() { # LOG
    sed -n 's/^result: //p; s/^skipped: //p' "$1" 2>/dev/null | tr '\t' ' ' |
        awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $0 }'
}

row() { # STAGE TEST passed|failed|skipped FUNCTIONS SECONDS TEXT: a line of results.tsv
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$@" >>"$results"
}

report() { # NAME ok|failed|skipped [LOG]
    case $2 in
    ok) passed=$((passed + 1)) ;;
    failed) failed=$((failed + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    esac
    printf '%-9s %s\n' "[$2]" "$1"
    if [ "$2" = failed ] || { [ "$2" = skipped ] && [ "${CI:-}" = true ]; }; then
        failure "$1" cat "${3:-/dev/null}"
    fi
    if [ "$2" != ok ] && [ -n "${3:-}" ]; then
        tail -n 60 "$3" | sed 's/^/    /'
    fi
}

check() { # NAME COMMAND...: one check, passed when the command succeeds; 77: cannot be done here
    name=$1
    shift
    started=$(date +%s)
    run "$logs/$name.log" "$@"
    code=$?
    seconds=$(($(date +%s) - started))
    case $code in
    0)
        report "$name ($seconds s)" ok
        row check "$name" passed 1 $seconds "$(told "$logs/$name.log")"
        ;;
    77)
        report "$name: $(tail -n 1 "$logs/$name.log")" skipped
        row check "$name" skipped 1 $seconds "$(tail -n 1 "$logs/$name.log")"
        ;;
    *)
        report "$name ($seconds s)" failed "$logs/$name.log"
        row check "$name" failed 1 $seconds ""
        ;;
    esac
    return $code
}

# Adds up a log of ctest -V. Lines of a test start with its number; cmocka's own summary tells how
# many functions passed. A test without one, and one that died before it, counts as one. The lines
# "fault: ..." of a test that passed are kept.
count_log() { # STAGE LOG
    totals=$(awk -v stage="$1" -v results="$results" -v kept="$faults" -v ci="${CI:-}" '
        function number(line, word) {
            sub(".*\\[  " word " *\\] ", "", line)
            return line + 0
        }
        /^[0-9]+: / {
            id = $0; sub(/:.*/, "", id)
            if ($0 ~ /\[  PASSED  \] [0-9]+ test/) passed[id] += number($0, "PASSED")
            else if ($0 ~ /\[  FAILED  \] [0-9]+ test/) failed[id] += number($0, "FAILED")
            else if ($0 ~ /\[  SKIPPED \] [0-9]+ test/) skipped[id] += number($0, "SKIPPED")
            said = $0
            if (sub(/^[0-9]+: (result|skipped): /, "", said)) {
                gsub(/\t/, " ", said)
                told[id] = told[id] (told[id] == "" ? "" : "; ") said
            }
            if (sub(/^[0-9]+: fault: /, "fault: ", said)) faults[id] = faults[id] said "\n"
            if ($0 ~ /\[ +(OK|FAILED|SKIPPED) +\] [^0-9]|\[  ERROR   \]|\[   LINE   \]|: skipped: /) {
                line = $0; sub(/^[0-9]+: /, "", line)
                line = stage ": " name[id] ": " line
                if (!seen[line]++) print line > "/dev/stderr"
            }
        }
        /^ *Start +[0-9]+: / {
            id = $2; sub(/:/, "", id); name[id] = $3
        }
        /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
            id = $0; sub(/.*Test +#/, "", id); sub(/:.*/, "", id)
            print stage ": " $0 > "/dev/stderr"
            if ($0 ~ /\*\*\*Skipped/) {
                if (!skipped[id]) skipped[id]++
            } else if ($0 !~ / Passed /) {
                if (!failed[id]) failed[id]++
            } else if (!passed[id] && !failed[id] && !skipped[id]) {
                passed[id]++
            }
            word = failed[id] ? "failed" : passed[id] ? "passed" : "skipped"
            if (skipped[id] && passed[id]) word = word ", " skipped[id] " skipped"
            printf "%s\t%s\t%s\t%d\t%s\t%s\n", stage, name[id], word,
                passed[id] + failed[id] + skipped[id], $(NF - 1), told[id] >> results
            if (!failed[id]) printf "%s", faults[id] >> kept
        }
        END {
            for (id in passed) p += passed[id]
            for (id in failed) f += failed[id]
            for (id in skipped) s += skipped[id]
            printf "%d %d %d", p, f, s
            for (id in name) if (failed[id] || (skipped[id] && ci == "true")) printf " %s", id
        }' "$2" 2>"$2.lines")
    cat "$2.lines"
    rm -f "$2.lines"
    # shellcheck disable=SC2086
    set -- $1 $2 $totals
    stage=$1 log=$2
    stage_passed=$3 stage_failed=$4
    passed=$((passed + $3)) failed=$((failed + $4)) skipped=$((skipped + $5))
    echo "$stage: $3 passed, $4 failed, $5 skipped"
    shift 5
    for id; do
        failure "$stage:$(sed -n "s|^ *[0-9]*/[0-9]* Test  *#$id: | |p" "$log")" \
            sed -n "s/^$id: //p" "$log"
    done
}

# ctest on one build folder. A run that fails without a failed test (nothing could start) counts.
tests() { # STAGE BUILD_FOLDER CTEST_ARGUMENTS...
    stage=$1 folder=$2
    shift 2
    run "$logs/$stage.log" ctest --test-dir "$folder" -V --no-tests=ignore --timeout "$timeout_s" "$@"
    code=$?
    count_log "$stage" "$logs/$stage.log"
    if [ $code -ne 0 ] && [ "$stage_failed" -eq 0 ]; then
        report "$stage" failed "$logs/$stage.log"
    fi
}

# --- stages -------------------------------------------------------------------------------------

install_packages() {
    release=$(. /etc/os-release 2>/dev/null; echo "${VERSION_ID:-}")
    missing=
    while read -r package where command; do
        case $package in '' | '#'*) continue ;; esac
        case $where in all | host | "$release") ;; *) continue ;; esac
        if [ -n "$command" ] && command -v "$command" >/dev/null; then
            continue
        fi
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            missing="$missing $package"
    done <"$here/packages.txt"
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        report "packages: please install$missing" failed
        return 1
    fi
    # shellcheck disable=SC2086
    check packages sh -c 'apt-get -q update; DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y install --no-install-recommends "$@"' sh $missing
}

tracked() { # files of the tree that git does not ignore, by pattern
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" |
            while IFS= read -r f; do [ ! -e "$f" ] || printf '%s\n' "$f"; done
    else
        for pattern; do find . -path './build*' -prune -o -name "$pattern" -print; done
    fi
}

# false only when nothing can be run; $targets: only these, all when empty
targets=
build() { # NAME FOLDER CMAKE_ARGUMENTS...
    name=$1 folder=$2
    shift 2
    check "$name" sh -c 'folder=$1; shift
        cmake -S . -B "$folder" -G Ninja -DFCAP_TEST_TIMEOUT='"$timeout_s"' "$@" &&
        ninja -C "$folder" -j "$FCAP_TEST_JOBS" -k 0 '"$targets" sh "$folder" "$@"
    [ -e "$folder/CTestTestfile.cmake" ]
}

# One broker for the whole run, when the tree has one: the program says where it listens on its
# first line and ends when it is told to.
start_broker() {
    [ -x "$top/build/fcap-test-broker" ] || return 0
    check kafka-jars sh "$here/kafka/fetch.sh" || return 1
    FCAP_KAFKA_LIB=$(tail -n 1 "$logs/kafka-jars.log")
    export FCAP_KAFKA_LIB
    setsid "$top/build/fcap-test-broker" >"$logs/broker.out" 2>"$logs/broker.log" </dev/null &
    broker=$!
    tries=0
    while [ ! -s "$logs/broker.out" ]; do
        tries=$((tries + 1))
        if [ $tries -gt 1200 ] || ! kill -0 "$broker" 2>/dev/null; then
            report broker failed "$logs/broker.log"
            return 1
        fi
        sleep 0.1
    done
    FCAP_TEST_BROKERS=$(head -n 1 "$logs/broker.out")
    export FCAP_TEST_BROKERS
    echo "broker: $FCAP_TEST_BROKERS"
}

# What the results were measured on: a "# name<TAB>text" line each.
fact() { # NAME TEXT
    printf '# %s\t%s\n' "$1" "$2" >>"$results"
}
facts() {
    processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
    memory=$(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)
    fact machine "$jobs cores ($processor), $memory, Linux $(uname -r)"
    fact system "$(. /etc/os-release 2>/dev/null; echo "${PRETTY_NAME:-unknown}")"
    fact libraries "$(build/fcapd version | awk 'NR > 1 && NF { $1 = $1; printf "%s%s", sep, $0; sep = "; " }')"
    fact redis "$(redis-server --version | sed -n 's/.*v=\([0-9.]*\).*/\1/p')"
    fact kafka "$(basename "${FCAP_KAFKA_LIB:-none}" | sed 's/^kafka-//')"
    fact compilers "$(gcc --version | head -n 1); $(clang --version | head -n 1)"
}

install_packages || exit 1
tracked '*.c' '*.h' >"$logs/format.files"
# Each release of clang-format has its own taste; the tree follows one.
check format sh -c 'f=$(command -v clang-format-14 || command -v clang-format) &&
    { "$f" --version | grep -q "version 14\." || { echo "needs clang-format 14"; exit 77; }; } &&
    xargs -a "$1" "$f" --dry-run -Werror' sh "$logs/format.files"
if build build-gcc build --preset ci; then
    check clang python3 "$here/tidy/clang.py" build "$jobs"
    start_broker # Without it the tests that need one say so themselves.
    facts
    tests fast build -L '^(unit|contract)$' -j "$jobs"
    tests other build -LE '^(unit|contract|integration)$' -j "$jobs"
    # Most of their time is waiting. What needs the machine for itself says so (RUN_SERIAL).
    tests integration build -L '^integration$' -j "$((jobs * 3))"
fi
targets='tests-unit tests-contract tests-sim tests-fuzz tests-mock'
if build build-asan build-asan --preset asan; then
    tests asan build-asan -L '^(unit|contract|sim|fuzz|mock)$' -j "$jobs"
fi
targets='tests-unit tests-contract tests-sim tests-mock tests-planted'
if build build-tsan build-tsan --preset tsan; then
    tests tsan build-tsan -L '^(unit|contract|sim|mock|planted)$' -j "$jobs"
fi
targets=fuzzers
if build build-fuzz build-fuzz -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang \
    -DFCAP_WERROR=ON -DFCAP_FUZZ=ON -DFCAP_SANITIZE=address,undefined; then
    # First the one that must crash: without it the others prove nothing.
    check fuzz-crash sh "$here/fuzz/must_crash.sh" build-fuzz/fuzz_crash -seed=1 -runs=3000000 \
        -max_len=64
    for file in "$here"/fuzz/fuzz_*.c; do
        target=$(basename "$file" .c)
        target=${target#fuzz_}
        [ -d "$here/fuzz/corpus/$target" ] && [ "$target" != crash ] || continue
        mkdir -p "$TMPDIR/found-$target"
        check "fuzz-$target" "build-fuzz/fuzz_$target" -max_total_time="$fuzz_s" -timeout=30 \
            -error_exitcode=1 -artifact_prefix="$logs/$target-" \
            "$TMPDIR/found-$target" "$here/fuzz/corpus/$target"
    done
fi
targets=
started=$(date +%s)
run "$logs/debian13.log" sh "$here/debian13.sh"
code=$?
took="$(($(date +%s) - started)) s"
if [ $code -eq 77 ]; then
    report "debian13: $(tail -n 1 "$logs/debian13.log")" skipped
    row check debian13 skipped 1 0 "$(tail -n 1 "$logs/debian13.log")"
else
    count_log debian13 "$logs/debian13.log"
    fact debian13 "$(sed -n 's/^with: //p' "$logs/debian13.log")"
    if [ $code -ne 0 ] || [ "$stage_passed" -eq 0 ]; then
        report "debian13 ($took)" failed "$logs/debian13.log"
    else
        report "debian13 ($took)" ok
    fi
fi
check faults python3 "$here/faults.py" --check --skipped "$skipped" "$faults"
exit 0
