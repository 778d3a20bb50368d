#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compiles the plug-in against other UCX: source trees, or suites of the
# distribution; prints TAP. A suite that the mirror does not serve is skipped.
set -euo pipefail

# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

top=$nprdma_top
case ${1-} in
-h | --help)
    echo "Usage: ucx-compile-check.sh SUITE|DIRECTORY..., for example" \
        "trixie ./ucx-1.18.1"
    sed -n '3,4s/^# //p' "$0"
    exit 0
    ;;
'')
    echo "ucx-compile-check.sh: no suite or directory given, for example:" \
        "trixie ./ucx-1.18.1" >&2
    exit 2
    ;;
-*)
    echo "ucx-compile-check.sh: unknown option '$1': see --help" >&2
    exit 2
    ;;
esac
config=$(cd "${NPRDMA_BUILD:-$top/build}" && pwd)/ucx-config
if [ ! -f "$config/config.h" ]; then
    echo "ucx-compile-check.sh: $config/config.h is missing: configure first" \
        "(contrib/check.sh), or set NPRDMA_BUILD" >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The one header that a source tree lacks, as its configure would write it
write_version_header() {
    local tree=$1 ver=$2 dir=$3 major minor patch
    IFS=. read -r major minor patch <<<"$ver"
    mkdir -p "$dir/uct/api" "$dir/ucp/api"
    sed -e "s/@MAJOR_VERSION@/$major/g; s/@MINOR_VERSION@/$minor/g" \
        -e "s/@PATCH_VERSION@/$patch/g; s/@VERSION@/$ver/g" \
        -e 's/@[A-Z_]*@//g' "$tree/src/uct/api/version.h.in" \
        >"$dir/uct/api/version.h"
    sed -e "s/@MAJOR_VERSION@/$major/g; s/@MINOR_VERSION@/$minor/g" \
        -e "s/@VERSION@/$ver/g" "$tree/src/ucp/api/ucp_version.h.in" \
        >"$dir/ucp/api/ucp_version.h"
}

# RDMA devices are an option, here as in configure
verbs=(-DHAVE_VERBS=1)
not=()
if ! echo '#include <infiniband/verbs.h>' |
    "${CC:-gcc}" -fsyntax-only -x c - 2>/dev/null; then
    verbs=()
    not=(! -path '*verbs*' ! -path '*/proto/v*')
fi

# compile TREE HEADERS: every source of the engine and the plug-in. How that
# UCX was configured does not matter for what compiles, so the installed one's
# configuration does.
compile() {
    local file failed=0
    while IFS= read -r file; do
        "${CC:-gcc}" -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror \
            -fsyntax-only -DHAVE_CONFIG_H -DNPRDMA_VERSION='"check"' "${verbs[@]}" \
            -Werror=implicit-function-declaration \
            -Werror=incompatible-pointer-types \
            -I"$config" -I"$2" -I"$top/include" -I"$top/src" \
            -isystem "$1/src" "$file" || failed=1
    done < <(find "$top/src/nprdma" "$top/src/uct/nprdma" "$top/src/ucp-hooks" \
        "$top/src/api" -name '*.c' "${not[@]}" | sort)
    return "$failed"
}

# Where the source of a suite is, or of a directory; else why there is none
find_tree() {
    case $1 in
    */*)
        [ -f "$1/src/uct/api/version.h.in" ] && [ -f "$1/configure.ac" ] &&
            tree=$1 && return
        reason="$1 is no whole source tree of UCX"
        failed=1
        ;;
    *)
        tree=$work/$1
        "$top/contrib/ucx-source.sh" --suite "$1" "$tree" >"$work/log" 2>&1 &&
            return
        reason=$(grep '^debian-source.sh:' "$work/log" | tail -n 1)
        reason=${reason#debian-source.sh: }
        ;;
    esac
    return 1
}

check() {
    local number=$1 what="compiles against UCX of $2" headers=$work/headers.$1
    local tree reason failed=0 ver
    if ! find_tree "$2"; then
        if [ "$failed" -eq 1 ]; then
            echo "not ok $number - $what: $reason"
        else
            echo "ok $number - $what # SKIP $reason"
        fi
        return "$failed"
    fi
    ver=$(nprdma_ucx_version "$tree")
    what="compiles against UCX $ver of $2"
    write_version_header "$tree" "$ver" "$headers"
    if compile "$tree" "$headers" >"$work/log" 2>&1; then
        echo "ok $number - $what"
        return 0
    fi
    echo "not ok $number - $what"
    head -n 40 "$work/log" | sed 's/^/# /'
    return 1
}

echo "1..$#"
number=0
result=0
for suite in "$@"; do
    number=$((number + 1))
    check "$number" "$suite" || result=1
done
exit "$result"
