#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches the distribution's UCX source package, for the private headers.
# The system's own apt configuration is read, never changed.
set -euo pipefail
# shellcheck source=contrib/apt.sh
. "$(dirname "$0")/apt.sh"

suite=
dest=

# Exit 3: the mirror does not serve it. Exit 1: anything else.
die() {
    local code=$1
    shift
    echo "ucx-source.sh: $*" >&2
    exit "$code"
}

while [ $# -gt 0 ]; do
    case $1 in
    --suite)
        [ $# -ge 2 ] || die 1 "--suite needs a name, for example trixie"
        suite=$2
        shift
        ;;
    -h | --help)
        echo "Usage: ucx-source.sh [--suite SUITE] DEST"
        sed -n '3,4s/^# //p' "$0"
        echo "Without SUITE it is the version of the installed libucx-dev."
        exit 0
        ;;
    -*) die 1 "unknown option '$1': ucx-source.sh [--suite SUITE] DEST" ;;
    *) dest=$1 ;;
    esac
    shift
done
[ -n "$dest" ] || die 1 "no destination: ucx-source.sh [--suite SUITE] DEST"

if [ -n "$suite" ]; then
    wanted="of $suite"
elif ! wanted=$(dpkg-query -W -f '${source:Version}' libucx-dev 2>/dev/null)
then
    die 1 "libucx-dev is not installed from a Debian package: install it, or" \
        "configure --with-ucx-source=DIR"
fi

stamp=$dest/.nprdma-ucx-source
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
if [ -e "$dest" ] && [ ! -f "$stamp" ] && [ -n "$(ls -A "$dest")" ]; then
    die 1 "$dest exists and was not made by this script: name another" \
        "directory, or remove it"
fi
if ! command -v dpkg-source >/dev/null; then
    die 1 "dpkg-source is missing: install dpkg-dev, or run contrib/setup.sh"
fi

mkdir -p "$(dirname "$dest")"
dest=$(realpath -m "$dest")
work=$(mktemp -d "$(dirname "$dest")/.ucx-source.XXXXXX")
trap 'rm -rf "$work"' EXIT

sources() {
    local uri release component keyring
    apt_mirrors | while read -r uri release component keyring; do
        local signed=
        if [ "$keyring" != - ]; then
            signed="[signed-by=$keyring] "
        fi
        if [ -n "$suite" ]; then
            # Updates and security come under their own names: one is enough
            case $release in
            *-*) continue ;;
            esac
            release=$suite
        fi
        echo "deb-src $signed$uri $release $component"
    done | sort -u
}

sources >"$work/sources.list"
if [ ! -s "$work/sources.list" ]; then
    die 1 "apt knows no mirror of this distribution (apt-get indextargets is" \
        "empty): add one to /etc/apt/sources.list, or" \
        "configure --with-ucx-source=DIR"
fi
mkdir -p "$work"/{lists,cache/archives}/partial "$work/download"
apt=(apt-get -q -y -o "Dir::Etc::sourcelist=$work/sources.list"
    -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root
    -o Debug::NoLocking=1 -o Acquire::Retries=2)

echo "ucx-source: fetching the UCX source $wanted"
# A source of a third party that does not answer need not matter
"${apt[@]}" update >"$work/log.update" 2>&1 || true
name=ucx
if [ -z "$suite" ]; then
    name=ucx=$wanted
fi
if ! (cd "$work/download" &&
    "${apt[@]}" source --download-only "$name") >"$work/log" 2>&1; then
    grep '^E:' "$work/log.update" >&2 || true
    die 3 "the mirror does not serve the UCX source $wanted" \
        "($(grep -m 1 '^E:' "$work/log" | sed 's/^E: //; s/ *\[IP.*//')):" \
        "try later, or configure --with-ucx-source=DIR"
fi
if ! dpkg-source --no-check -x "$work"/download/*.dsc "$work/tree" \
    >"$work/log" 2>&1; then
    tail -n 5 "$work/log" >&2
    die 1 "cannot unpack the UCX source (see above)"
fi
echo "$wanted" >"$work/tree/${stamp##*/}"
rm -rf "$dest"
mv "$work/tree" "$dest"
echo "ucx-source: unpacked to $dest"
