#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches the source package of an installed Debian package, or of a suite.
# The system's own apt configuration is read, never changed.
set -euo pipefail
# shellcheck source=contrib/apt.sh
. "$(dirname "$0")/apt.sh"

suite=
instead=
words=()

# Exit 3: the mirror does not serve it. Exit 1: anything else.
die() {
    local code=$1
    shift
    echo "debian-source.sh: $*" >&2
    exit "$code"
}

usage="debian-source.sh [--suite SUITE] [--instead TEXT] SOURCE PACKAGE DEST"
while [ $# -gt 0 ]; do
    case $1 in
    --suite | --instead)
        [ $# -ge 2 ] || die 1 "$1 needs an argument: $usage"
        [ "$1" = --suite ] && suite=$2 || instead=", or $2"
        shift
        ;;
    -h | --help)
        echo "Usage: $usage"
        sed -n '3,4s/^# //p' "$0"
        echo "Without SUITE it is the version of the installed PACKAGE. TEXT" \
            "says what else to do if it cannot be had."
        exit 0
        ;;
    -*) die 1 "unknown option '$1': $usage" ;;
    *) words+=("$1") ;;
    esac
    shift
done
[ ${#words[@]} -eq 3 ] || die 1 "a source, a package and a destination: $usage"
source=${words[0]} package=${words[1]} dest=${words[2]}

if [ -n "$suite" ]; then
    wanted="of $suite"
elif ! wanted=$(dpkg-query -W -f '${source:Version}' "$package" 2>/dev/null)
then
    die 1 "$package is not installed from a Debian package: install it$instead"
fi

stamp=$dest/.nprdma-$source-source
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
work=$(mktemp -d "$(dirname "$dest")/.$source-source.XXXXXX")
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
        "empty): add one to /etc/apt/sources.list$instead"
fi
mkdir -p "$work"/{lists,cache/archives}/partial "$work/download"
apt=(apt-get -q -y -o "Dir::Etc::sourcelist=$work/sources.list"
    -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root
    -o Debug::NoLocking=1 -o Acquire::Retries=2)

echo "$source-source: fetching the source of $source $wanted"
# A source of a third party that does not answer need not matter
"${apt[@]}" update >"$work/log.update" 2>&1 || true
name=$source
if [ -z "$suite" ]; then
    name=$source=$wanted
fi
if ! (cd "$work/download" &&
    "${apt[@]}" source --download-only "$name") >"$work/log" 2>&1; then
    grep '^E:' "$work/log.update" >&2 || true
    die 3 "the mirror does not serve the source of $source $wanted" \
        "($(grep -m 1 '^E:' "$work/log" | sed 's/^E: //; s/ *\[IP.*//')):" \
        "try later$instead"
fi
if ! dpkg-source --no-check -x "$work"/download/*.dsc "$work/tree" \
    >"$work/log" 2>&1; then
    tail -n 5 "$work/log" >&2
    die 1 "cannot unpack the source of $source (see above)"
fi
echo "$wanted" >"$work/tree/${stamp##*/}"
rm -rf "$dest"
mv "$work/tree" "$dest"
echo "$source-source: unpacked to $dest"
