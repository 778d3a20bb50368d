# SPDX-License-Identifier: BSD-3-Clause
# A root of a Debian, made once and kept, and commands that run inside it: what
# distro.sh and cross.sh share. Theirs is suite; tap is yes where what is
# missing on this machine is a skip.
# shellcheck shell=bash disable=SC2034,SC2154
# shellcheck source-path=SCRIPTDIR

LAB_ME=${0##*/}
# shellcheck source=../test/lab/lib/say.sh
. "$top/test/lab/lib/say.sh"
# shellcheck source=lib.sh
. "$top/contrib/lib.sh"
# shellcheck source=apt.sh
. "$top/contrib/apt.sh"
# shellcheck source=../test/lab/lib/cache.sh
. "$top/test/lab/lib/cache.sh"

tap=no
sources=() # trees of UCX, which the inside has as /ucx-0, /ucx-1
built=     # what was built outside, which the inside has as /built

# die CODE TEXT...
die() {
    local code=$1
    shift
    if [ "$tap" = yes ] && [ "$code" -eq "$LAB_RC_SKIP" ]; then
        echo "1..0 # SKIP $*"
        exit 0
    fi
    echo "$LAB_ME: $*" >&2
    exit "$code"
}

usage_error() {
    die "$LAB_RC_USAGE" "$@"
}

# take_source [DIR...]: the first is the value of --ucx-source
take_source() {
    [[ ${1-} == [!-]* ]] || usage_error "--ucx-source needs a directory"
    [ -f "$1/src/uct/api/version.h.in" ] ||
        usage_error "--ucx-source $1: no src/uct/api/version.h.in there: name" \
            "the top of a source tree of UCX"
    sources+=("$(realpath "$1")")
}

# root_open NAME: base, which is ours alone from now on, and tree, in which the
# copy of the working tree is, and its builds
root_open() {
    need mmdebstrap mmdebstrap
    need unshare util-linux
    base=$top/$1
    tree=$base/tree
    mkdir -p "$tree"
    exec {lock}>"$base/.lock"
    flock -n "$lock" || usage_error "another $LAB_ME uses $base"
    cache_use
}

# distro_make SUITE PACKAGES [OPTION...] DIR: DIR/root; options are of
# mmdebstrap
distro_make() {
    local suite=$1 names=$2 dir=${*: -1}
    if ! apt_open "$suite" "$dir/apt"; then
        CACHE_ERROR=$APT_ERROR
        return "$LAB_RC_SKIP"
    fi
    mkdir "$dir/root"
    if ! bootstrap "$suite" "$dir" "$names" "${@:3:$#-3}" ||
        ! tar -x -f "$dir/root.tar" -C "$dir/root" --no-same-owner \
            --exclude='./dev/*'; then
        tail -n 15 "$dir/log" >&2
        CACHE_ERROR="cannot make a root of $suite: the end of the log is above"
        return 1
    fi
    rm -rf "$dir/root.tar" "$dir/apt"
}

# root_prepare NAME PACKAGES [OPTION...]: root is one of the suite with these
root_prepare() {
    cached "$1-$suite" 6000 "${*:2} $(declare -f distro_make bootstrap)" \
        distro_make "$suite" "${@:2}"
    root=$CACHED/root
}

# root_fetch_source: base/ucx-source is the one of the suite. Exit 3: the mirror
# does not have it, which is a skip.
root_fetch_source() {
    local code=0
    "$top/contrib/ucx-source.sh" --suite "$suite" "$base/ucx-source" >&2 ||
        code=$?
    case $code in
    0) ;;
    3)
        die "$LAB_RC_SKIP" "no private headers of the UCX of $suite (see" \
            "above): --ucx-source DIR names a source tree of it"
        ;;
    *) die 1 "cannot fetch the UCX of $suite: see above" ;;
    esac
}

# The working tree as it is, changes included
copy_tree() {
    local list=$base/files
    nprdma_files | sort -z >"$list.new"
    if [ -f "$list" ]; then
        (cd "$tree" && comm -z -23 "$list" "$list.new" | xargs -0 -r rm -f)
    fi
    mv "$list.new" "$list"
    tar -c -C "$top" --null -T "$list" | tar -x -C "$tree" --no-same-owner
}

root_shell() {
    inside "$root" bash
    exit
}

# inside ROOT COMMAND...: there, with processes and a /dev/shm of its own.
# What it writes outside its tree is gone afterwards.
inside() {
    local root=$1
    local -a as_root=()
    shift
    [ "$EUID" -eq 0 ] || as_root=(--map-root-user)
    mkdir -p "$base/root"
    # shellcheck disable=SC2016
    ROOT=$root NEW=$base/root TREE=$tree GIT=$top/.git BUILT=$built \
        SOURCES=$(printf '%s\n' "${sources[@]}") \
        setpriv --pdeathsig KILL unshare "${as_root[@]}" --mount --pid --fork \
        --kill-child bash -euc '
        mount -t tmpfs tmpfs "$NEW"
        mkdir "$NEW"/{upper,work,root}
        mount -t overlay overlay "$NEW/root" \
            -o "lowerdir=$ROOT,upperdir=$NEW/upper,workdir=$NEW/work"
        cd "$NEW/root"
        mkdir nprdma
        mount --bind "$TREE" nprdma
        if [ -d "$GIT" ]; then
            mkdir -p nprdma/.git
            mount --bind "$GIT" nprdma/.git
            mount -o remount,bind,ro nprdma/.git
        fi
        number=0
        while read -r source; do
            [ -n "$source" ] || continue
            mkdir "ucx-$number"
            mount --bind "$source" "ucx-$number"
            mount -o remount,bind,ro "ucx-$number"
            number=$((number + 1))
        done <<<"$SOURCES"
        if [ -n "$BUILT" ]; then
            mkdir built
            mount --bind "$BUILT" built
            mount -o remount,bind,ro built
        fi
        mount -t proc proc proc
        mount --rbind /sys sys
        mount --rbind /dev dev
        mount -t tmpfs -o mode=1777 tmpfs dev/shm
        mount -t tmpfs -o mode=1777 tmpfs tmp
        cp /etc/hosts /etc/resolv.conf etc/ 2>/dev/null || true
        hostname >etc/hostname
        exec chroot . /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root TERM="${TERM-dumb}" LANG=C.UTF-8 CI="${CI-}" \
            GTEST_FILTER="${GTEST_FILTER-*}" \
            NPRDMA_CONFIGURE_ARGS="${NPRDMA_CONFIGURE_ARGS-}" \
            DEBFULLNAME="nprdma tests" DEBEMAIL=nprdma@example.org \
            GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory \
            GIT_CONFIG_VALUE_0="*" /bin/bash -euc "cd /nprdma; exec \"\$@\"" \
            inside "$@"
    ' inside "$@"
}
