# SPDX-License-Identifier: BSD-3-Clause
# What deb.sh and rpm.sh share.
# shellcheck shell=bash disable=SC2034,SC2154
# shellcheck source-path=SCRIPTDIR

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
# shellcheck source=../lib.sh
. "$top/contrib/lib.sh"
source= # a tree of UCX
made=   # when, in seconds since 1970

# die TEXT...: what is missing, or did not go well
die() {
    echo "$nprdma_me: $*" >&2
    exit 1
}

usage_error() {
    echo "$nprdma_me: $*" >&2
    exit 2
}

# packages_option OPTION [DIR]: of those that both have
packages_option() {
    [[ ${2-} == [!-]* ]] || usage_error "$1 needs a directory"
    if [ "$1" = --out ]; then
        out=$2
    else
        source=$2
    fi
}

# packages_source: source is one, named or fetched
packages_source() {
    if [ -z "$source" ]; then
        source=$top/build/ucx-source
        "$top/contrib/ucx-source.sh" "$source"
    fi
    [ -f "$source/src/uct/base/uct_iface.h" ] ||
        usage_error "$source: no src/uct/base/uct_iface.h there: name the top" \
            "of a source tree of UCX"
    source=$(realpath "$source")
}

# packages_version UCX: sets major and minor of that version of UCX, version of
# this tree, made, and stamp, by which packages of one version are told apart
packages_version() {
    local ucx=$1
    major=${ucx%%.*}
    minor=${ucx#*.}
    minor=${minor%%[!0-9]*}
    version=$(sed -n 's/^AC_INIT(\[nprdma\], \[\(.*\)\])/\1/p' \
        "$top/configure.ac")
    made=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null ||
        date +%s)}
    stamp=$(date -u -d "@$made" +%Y%m%d%H%M)
}

# packages_open: a directory of ours beside what is made there before
packages_open() {
    mkdir -p "$out" 2>/dev/null || usage_error "cannot make $out"
    out=$(realpath "$out")
    work=$(mktemp -d "$out/.build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

packages_host() {
    hostname -f 2>/dev/null || hostname
}
