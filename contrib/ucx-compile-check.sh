#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compiles the plug-in against the UCX of other suites of the distribution;
# prints TAP. A suite whose source the mirror does not serve is skipped.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
case ${1-} in
-h | --help)
    echo "Usage: ucx-compile-check.sh SUITE..., for example trixie sid"
    sed -n '3,4s/^# //p' "$0"
    exit 0
    ;;
'')
    echo "ucx-compile-check.sh: no suite given, for example: trixie sid" >&2
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

# version DIR: of a UCX source tree
version() {
    sed -n 's/^define(\[ucx_ver_[a-z]*\], *\([0-9][0-9]*\)).*/\1/p' \
        "$1/configure.ac" | paste -s -d .
}

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
            -I"$config" -I"$2" -I"$top/include" -I"$top/src" \
            -isystem "$1/src" "$file" || failed=1
    done < <(find "$top/src/nprdma" "$top/src/uct/nprdma" -name '*.c' \
        "${not[@]}" | sort)
    return "$failed"
}

check() {
    local number=$1 suite=$2 tree=$work/$2 ver reason
    if ! "$top/contrib/ucx-source.sh" --suite "$suite" "$tree" \
        >"$work/log" 2>&1; then
        reason=$(grep '^ucx-source.sh:' "$work/log" | tail -n 1)
        echo "ok $number - compiles against UCX of $suite # SKIP" \
            "${reason#ucx-source.sh: }"
        return 0
    fi
    ver=$(version "$tree")
    write_version_header "$tree" "$ver" "$work/$suite-headers"
    if compile "$tree" "$work/$suite-headers" >"$work/log" 2>&1; then
        echo "ok $number - compiles against UCX $ver of $suite"
        return 0
    fi
    echo "not ok $number - compiles against UCX $ver of $suite"
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
