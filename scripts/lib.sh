# Shared by the scripts beside it: sourced, never run. POSIX sh; needs Python >= 3.11 with its venv module, no compiler.
# The sourcing script finds the repository in $root. Nothing is printed on standard output.

# shellcheck shell=sh
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
unset PYTHONPATH PYTHONHOME

die() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

# quietly COMMAND...: its output is seen only if it fails, and then the script ends.
quietly() {
    if ! output=$("$@" </dev/null 2>&1); then
        printf '%s\n' "$output" >&2
        die "this command failed: $*"
    fi
}

# Sets $python to an interpreter that can make environments, or ends with what to install. PYTHON=... names one to use.
find_python() {
    why="Python 3.11 or newer was not found: install it (Debian, Ubuntu: apt-get install python3 python3-venv)."
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            why="$python is Python $version, but 3.11 or newer is needed: install it (Debian, Ubuntu: apt-get install python3.11 python3.11-venv)."
        elif "$python" -c 'import ensurepip, fcntl, venv' 2>/dev/null; then
            return 0
        else
            why="$python cannot make environments: install its venv module (Debian, Ubuntu: apt-get install ${python##*/}-venv)."
        fi
    done
    die "$why"
}

# ensure_venv DIR PIP-ARGUMENTS...: an environment with what the arguments ask for, made or refreshed when pyproject.toml,
# the arguments or its place changed. Runs that come together wait for the first.
ensure_venv() {
    venv=$1
    shift
    stamp=$(printf '%s\n' "$venv" "$@" | cat - "$root/pyproject.toml" | cksum)
    if venv_is_current; then return 0; fi
    if runs "$venv/bin/python"; then python=$venv/bin/python; else find_python; fi
    mkdir -p "$venv"
    exec 9>"$venv/.lock"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' 9>&9
    venv_is_current || make_venv "$@"
    exec 9>&-
}

venv_is_current() {
    [ "$(cat "$venv/.made-from" 2>/dev/null)" = "$stamp" ] && runs "$venv/bin/python"
}

runs() {
    "$1" -c '' 2>/dev/null
}

make_venv() {
    printf '%s: making the environment %s (a minute, once) ...\n' "${0##*/}" "$venv" >&2
    rm -f "$venv/.made-from"
    if ! runs "$venv/bin/python"; then
        rm -f "$venv"/bin/python*
        quietly "$python" -m venv "$venv"
    fi
    quietly "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --only-binary :all: "$@"
    printf '%s\n' "$stamp" >"$venv/.made-from"
}
