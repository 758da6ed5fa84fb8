# Sourced by the other scripts, from the repository's root: what they need of the machine, and
# the virtual environment in .venv.

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }

# A Python's settings are the user's, not ours; and an installation that writes no bytecode
# would compile itself again at every start of the helper.
unset PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

# The interpreter itself (a shim costs half a second a start), 3.11 or newer and able to make a
# virtual environment: Debian's cannot without its package python3-venv. The one that made .venv
# comes first.
find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} "$(sed -n 2p .venv/stamp 2>/dev/null)" python3 python3.{11..19} /usr/bin/python3; do
        "$name" -c '
import sys
if sys.version_info < (3, 11):
    sys.exit(1)
import ensurepip, venv
print(sys.executable)' 2>/dev/null && return
    done
    return 1
}

# missing COMMAND=PACKAGE…: the Debian packages of the commands that are not there.
missing() {
    local pair
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || printf '%s\n' "${pair#*=}"
    done
    find_python >/dev/null || printf 'python3-venv\n'
}

# need_commands COMMAND=PACKAGE…: as root installs what is missing; else says what, and stops.
need_commands() {
    local packages
    packages=$(missing "$@" | sort -u | xargs)
    [ -z "$packages" ] && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "needs, in Debian's names: $packages. Install them and start it again:
    sudo apt-get install --no-install-recommends $packages"
    fi
    say "installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || die "apt-get update failed"
    # shellcheck disable=SC2086  # words, on purpose
    apt-get install -qq -y --no-install-recommends $packages >&2 || die "apt-get install failed"
    packages=$(missing "$@" | sort -u | xargs)
    [ -z "$packages" ] || die "still missing after apt-get install: $packages"
}

# Makes .venv, with the package installed for editing and all that testing and checking take.
# Does nothing when there is one made from the same: it cannot be moved, nor change its Python.
make_venv() {
    local python made_from data
    python=$(find_python) || die "needs Python 3.11 or newer, with its venv module"
    made_from=$(printf '%s\n' "$PWD" "$python"; "$python" -V; cksum pyproject.toml)
    data=$(find lexicons share -type f -exec cksum {} + | sort)
    if [ "$(cat .venv/stamp 2>/dev/null)" != "$made_from" ]; then
        say "making .venv with $python"
        rm -rf .venv
        "$python" -m venv .venv || die "could not make .venv"
        install '.[server,test,dev]'
        printf '%s\n' "$made_from" >.venv/stamp
    elif [ "$(cat .venv/data-stamp 2>/dev/null)" != "$data" ]; then
        install --no-deps .  # what an installation for editing has copies of
    fi
    printf '%s\n' "$data" >.venv/data-stamp
    PATH=$PWD/.venv/bin:$PATH
    export PATH
}

# install [--no-deps] WHAT, WHAT being the last argument.
install() {
    .venv/bin/python -m pip install -qq --disable-pip-version-check \
        "${@:1:$#-1}" --editable "${!#}" || die "pip could not install the project into .venv"
}
