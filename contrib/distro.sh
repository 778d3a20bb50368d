#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds and tests this tree in another Debian, with that Debian's own compiler,
# UCX and MPI: in a root of its packages, which is made once and kept.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd -P)
# shellcheck source=root.sh
. "$top/contrib/root.sh"

suite=
what=tests
inexact=no
arguments=()

usage() {
    cat <<'END'
Usage: distro.sh SUITE [--ucx-source DIR]... [--inexact] [ARGUMENT...]
       distro.sh SUITE [--ucx-source DIR] [--inexact] --packages
       distro.sh SUITE --built
       distro.sh SUITE [--ucx-source DIR]... --shell
Builds and tests this tree in another Debian, for example trixie or sid, with
that Debian's own compiler, UCX and MPI: contrib/check.sh --quick, with
ARGUMENTs such as --only 'gtest_*'.

  --ucx-source DIR  a source tree of the UCX that SUITE has, for the private
                    headers; without it Debian's source package is fetched. More
                    than one: the others are only compiled against.
  --inexact         go on where its public headers differ from the installed
                    ones: what the private ones say may be wrong
  --packages        instead make Debian packages there, and install, use and
                    remove them where nothing but MPI and UCX is; prints TAP
  --built           instead run there what build/ has, which was built here:
                    the engine's tests with that Debian's libraries, and how
                    the plug-in is refused by its UCX; prints TAP. Needs no
                    headers.
  --shell           a shell in there instead, which has each DIR as /ucx-0,
                    /ucx-1 and so on

The root takes 1 to 3 GB where the lab keeps its own (NPRDMA_LAB_CACHE), and 150
to 600 MB from the mirrors of this machine's apt, once. Builds and logs are in
build-SUITE/tree/build.
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --ucx-source)
        take_source "${@:2}"
        shift
        ;;
    --inexact) inexact=yes ;;
    --shell | --packages | --built)
        [ "$what" = tests ] || usage_error "--$what does not go with $1"
        what=${1#--}
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    --only | --tap)
        [ $# -ge 2 ] || usage_error "$1 needs a value: see check.sh --help"
        arguments+=("$1" "$2")
        shift
        ;;
    -*) usage_error "unknown option '$1': see --help" ;;
    *)
        [ -z "$suite" ] ||
            usage_error "'$1' is one argument too many: see --help"
        suite=$1
        ;;
    esac
    shift
done
[[ $suite =~ ^[a-z]+$ ]] ||
    usage_error "${suite:+"'$suite' is no suite of Debian: "}which Debian?" \
        "For example distro.sh trixie"
case $what in
packages | built) tap=yes ;;
esac
[ "$what" != tests ] ||
    "$top/test/run-tests.sh" --try --quick "${arguments[@]}"
[ "$what" = tests ] || [ ${#arguments[@]} -eq 0 ] ||
    usage_error "${arguments[0]} does not go with --$what"
case $what in
built)
    if [ ${#sources[@]} -gt 0 ] || [ "$inexact" = yes ]; then
        usage_error "--built needs no headers of UCX: neither --ucx-source" \
            "nor --inexact goes with it"
    fi
    ;;
packages)
    [ ${#sources[@]} -le 1 ] ||
        usage_error "--packages are made with one --ucx-source"
    ;;
esac

# What building, testing and packaging needs
builder_packages() {
    {
        "$top/contrib/setup.sh" --no-lab --list
        printf '%s\n' build-essential debhelper dh-dkms lintian
    } | paste -s -d ,
}

# What a user has: MPI, UCX's tools, and what DKMS needs
USER_PACKAGES=openmpi-bin,ucx-utils,rdma-core,dkms,linux-headers-amd64

# What it takes to run what was built elsewhere
PLAIN_PACKAGES=openmpi-bin,ucx-utils,procps

# api_of DIR: the public headers of the root, as the compiler sees them, with
# those of DIR first. What is of other processors is not there, nor is it here,
# and what GPUs run wants their compiler.
api_of() {
    # shellcheck disable=SC2016
    inside "$root" bash -o pipefail -c 'cd /usr/include
        find ucm ucp ucs uct -name "*.h" ! -path "ucs/arch/*/*" \
            ! -path "*/device/*" | sort |
        sed "s/.*/#include <&>/" | gcc -w -E -P -I"$1" -x c -' bash "$1"
}

# choose_source: sets source to the tree that is built with, as the inside has
# it, and others to the rest
choose_source() {
    local number version wanted differs
    wanted=$(nprdma_ucx_installed inside "$root")
    for number in "${!sources[@]}"; do
        version=$(nprdma_ucx_version "${sources[$number]}")
        if [ -z "$source" ] && [ "$version" = "$wanted" ]; then
            source=/ucx-$number
            # A version says x.y.z only: there are candidates, and patches
            api_of /usr/include >"$base/api.installed"
            api_of "$source/src" >"$base/api.source"
            differs=$(diff "$base"/api.{installed,source} || true)
            if [ -n "$differs" ]; then
                head -n 10 <<<"$differs" >&2
                differs="${sources[$number]} is not the UCX of $suite, though"
                differs+=" both are $version: their headers differ (above)"
                [ "$inexact" = yes ] ||
                    usage_error "$differs; --inexact goes on all the same"
                say "$differs"
            fi
        else
            others+=("/ucx-$number")
        fi
    done
    if [ -n "$source" ]; then
        return
    elif [ ${#sources[@]} -gt 0 ]; then
        usage_error "$suite has UCX $wanted, and no --ucx-source is of that"
    fi
    # One that was fetched before that Debian's UCX moved is no use
    if [ "$(nprdma_ucx_version "$base/ucx-source")" != "$wanted" ]; then
        rm -rf "$base/ucx-source"
        root_fetch_source
    fi
    version=$(nprdma_ucx_version "$base/ucx-source")
    [ "$version" = "$wanted" ] ||
        die "$LAB_RC_SKIP" "$suite has UCX $wanted, and the mirror the source" \
            "of $version: --ucx-source DIR names one of $wanted"
    sources=("$base/ucx-source")
    source=/ucx-0
}

# Makes packages, and installs, uses and removes them where a user would
try_packages() {
    inside "$root" contrib/packages/deb.sh --ucx-source "$source" --check >&2
    root_prepare root-user "$USER_PACKAGES"
    inside "$root" env NPRDMA_SYSTEM_IS_A_COPY=yes contrib/packages/try.sh
}

# Runs there what was built here
try_built() {
    local file
    for file in install/bin/nprdma-run install/bin/nprdma_info test_engine \
        test_race osu-bench/osu_latency; do
        [ -x "$top/build/$file" ] ||
            usage_error "$top/build/$file is missing: contrib/check.sh" \
                "builds it"
    done
    root_open "build-$suite"
    copy_tree
    root_prepare root-plain "$PLAIN_PACKAGES"
    built=$top/build
    inside "$root" contrib/elsewhere.sh /built
}

if [ "$what" = built ]; then
    try_built
    exit
fi
root_open "build-$suite"
copy_tree
source=
others=()
# Before the root, which takes minutes
[ "$what" = shell ] || [ ${#sources[@]} -gt 0 ] || root_fetch_source
root_prepare root "$(builder_packages)"
[ "$what" != shell ] || root_shell
choose_source
if [ "$what" = packages ]; then
    try_packages
    exit
fi
if [ ${#others[@]} -gt 0 ]; then
    arguments+=(--tap "contrib/ucx-compile-check.sh ${others[*]}")
fi
NPRDMA_CONFIGURE_ARGS="${NPRDMA_CONFIGURE_ARGS-} --with-ucx-source=$source" \
    inside "$root" contrib/check.sh --quick "${arguments[@]}"
