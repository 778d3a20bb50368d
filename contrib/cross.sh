#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds this tree for another processor, with Debian's cross compiler, and runs
# its tests by qemu-user: in a root of Debian's packages, which is made once and
# kept. Prints TAP.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd -P)
# shellcheck source=root.sh
. "$top/contrib/root.sh"

# What cross-run.sh has
PROGRAMS="test_engine test_race test_sim test_rows"

suite=$LAB_SUITE
processor=
programs=()
shell=no

usage() {
    cat <<END
Usage: cross.sh arm64 [--ucx-source DIR] [--shell | PROGRAM...]
Builds this tree for arm64 on amd64, with Debian's ($suite's) cross compiler and
arm64 packages, warnings as errors, and runs the tests that do not need a real
kernel of that processor by qemu-user. Prints TAP.

  PROGRAM           only these of its tests, which are
                    $PROGRAMS
  --ucx-source DIR  a source tree of $suite's UCX, for the private headers;
                    without it Debian's source package is fetched
  --shell           a shell in there instead

The root takes 2 GB where the lab keeps its own (NPRDMA_LAB_CACHE), and some
400 MB from the mirrors of this machine's apt, once. The build, and what tests
printed, are in build-arm64/tree/build.
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --ucx-source)
        take_source "${@:2}"
        shift
        ;;
    --shell) shell=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) usage_error "unknown option '$1': see --help" ;;
    *)
        if [ -z "$processor" ]; then
            processor=$1
        else
            programs+=("$1")
        fi
        ;;
    esac
    shift
done
[ -n "$processor" ] || usage_error "for which processor? cross.sh arm64"
[ "$processor" = arm64 ] ||
    usage_error "'$processor' is no processor that this knows: cross.sh arm64"
for program in "${programs[@]}"; do
    [[ " $PROGRAMS " == *" $program "* ]] ||
        usage_error "'$program' is none of its tests: $PROGRAMS"
done

# Of amd64, and of arm64. Nothing of an arm64 package is run when it is
# installed but its shell scripts.
PACKAGES=gcc-aarch64-linux-gnu,g++-aarch64-linux-gnu,make,autoconf,automake
PACKAGES+=,libtool,file,procps,qemu-user-static,libucx-dev:arm64
PACKAGES+=,ucx-utils:arm64,libibverbs-dev:arm64,libmunge-dev:arm64
PACKAGES+=,libgtest-dev:arm64

# has_arm64 DIR: does the mirror have such packages? It says so by its lists.
has_arm64() {
    local -a both=(-o APT::Architectures::=amd64 -o APT::Architectures::=arm64)
    if ! apt_open "$suite" "$1"; then
        CACHE_ERROR=$APT_ERROR
        return 1
    fi
    CACHE_ERROR="the mirror has no packages of $suite for arm64"
    "${APT_GET[@]}" "${both[@]}" --error-on=any update >"$1/log" 2>&1 \
        </dev/null &&
        "${APT_CACHE[@]}" "${both[@]}" show libucx-dev:arm64 >"$1/log" 2>&1
}

# cross_make DIR: as distro_make
cross_make() {
    has_arm64 "$1/apt-arm64" || return "$LAB_RC_SKIP"
    CACHE_ERROR=
    rm -rf "$1/apt-arm64"
    distro_make "$suite" "$PACKAGES" --architectures=amd64,arm64 "$1"
}

[ "$(dpkg --print-architecture)" = amd64 ] ||
    die "$LAB_RC_SKIP" "this is no amd64: there is no cross build on" \
        "$(dpkg --print-architecture)"
if [ "$shell" = yes ]; then
    [ ${#programs[@]} -eq 0 ] ||
        usage_error "'${programs[0]}' does not go with --shell"
else
    tap=yes
fi
[ ${#sources[@]} -le 1 ] || usage_error "one --ucx-source is built with"
root_open build-arm64
# Before the root, which takes minutes
if [ "$shell" = no ] && [ ${#sources[@]} -eq 0 ]; then
    root_fetch_source
    sources=("$base/ucx-source")
fi
cached root-arm64 6000 "$suite $PACKAGES $(declare -f cross_make has_arm64 \
    distro_make bootstrap)" cross_make
root=$CACHED/root
copy_tree
[ "$shell" = no ] || root_shell
inside "$root" contrib/cross-run.sh /ucx-0 "${programs[@]}"
