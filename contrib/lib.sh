# SPDX-License-Identifier: BSD-3-Clause
# Shared by check.sh and osu.sh: set up, configure, build and install, each
# only if needed.
# shellcheck shell=bash

nprdma_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
nprdma_me=${0##*/}

nprdma_die() {
    echo "$nprdma_me: $*" >&2
    exit 1
}

# nprdma_files: names, each ended by a NUL, of what is in the working tree: what
# git knows or would; without git, all but what is built
nprdma_files() {
    local name
    if [ "$(git -C "$nprdma_top" rev-parse --show-toplevel 2>/dev/null)" = \
        "$(realpath "$nprdma_top")" ]; then
        git -C "$nprdma_top" ls-files -z -c -o --exclude-standard
    else
        find "$nprdma_top" \( -path "$nprdma_top/.git" \
            -o -path "$nprdma_top/build" -o -path "$nprdma_top/build-*" \
            ! -path "$nprdma_top/build-aux" \) -prune -o -type f -printf '%P\0'
    fi | while IFS= read -r -d '' name; do
        [ ! -e "$nprdma_top/$name" ] || printf '%s\0' "$name"
    done
}

# nprdma_ucx_version DIR: of a source tree of UCX
nprdma_ucx_version() {
    sed -n 's/^define(\[ucx_ver_[a-z]*\], *\([0-9][0-9]*\)).*/\1/p' \
        "$1/configure.ac" | paste -s -d .
}

# nprdma_ucx_installed [COMMAND...]: the version of the UCX that is installed
# here, or where COMMAND runs another one
nprdma_ucx_installed() {
    "$@" ucx_info -v 2>/dev/null |
        sed -n 's/^# .*ersion:* *v*\([0-9.]*\).*/\1/p' | head -n 1
}

# nprdma_step TITLE LOG COMMAND...: one line; the log's end if it fails
nprdma_step() {
    local title=$1 log=$2 start=$SECONDS
    shift 2
    printf '%-32s ' "$title"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        echo "failed"
        tail -n 30 "$log" >&2
        nprdma_die "$title failed: the end of $log is above"
    fi
    echo "$((SECONDS - start)) s"
}

# nprdma_configure BUILD ARGUMENT...
nprdma_configure() {
    local build=$1 wanted
    shift
    if [ ! -x "$nprdma_top/configure" ]; then
        nprdma_step "autogen" "$build/autogen.log" "$nprdma_top/autogen.sh"
    fi
    wanted="$* $(ucx_info -v | head -n 1)"
    if [ ! -f "$build/Makefile" ] ||
        [ "$(cat "$build/.configured" 2>/dev/null)" != "$wanted" ]; then
        (
            cd "$build" || exit 1
            nprdma_step "configure ${build##*/}" configure.log \
                "$nprdma_top/configure" -q --prefix="$build/install" "$@"
            # Objects do not depend on flags
            make -s clean >clean.log 2>&1
        )
        echo "$wanted" >"$build/.configured"
    fi
}

# nprdma_install BUILD TARGETS...: builds the targets, then installs
nprdma_install() {
    local build=$1
    shift
    nprdma_step "make ${build##*/}" "$build/make.log" \
        make -s -C "$build" -j "$(nproc)" "$@"
    nprdma_step "install to ${build##*/}/install" "$build/install.log" \
        make -s -C "$build" install
}

# nprdma_own BUILD: one line if it is somebody else's
nprdma_own() {
    local file
    mkdir -p "$1" 2>/dev/null || true
    for file in "$1" "$1"/{.lock,.osu.lock,Makefile,osu,osu-fresh,bench}; do
        if [ -e "$file" ] && [ -w "$file" ]; then
            continue
        elif [ ! -e "$file" ]; then
            [ "$file" = "$1" ] || continue
            file=${1%/*}
        fi
        nprdma_die "cannot write to $file, which is $(stat -c %U "$file")'s" \
            "(you are $(id -un)): run this as that user, or clone" \
            "$nprdma_top and work in the clone"
    done
}

# nprdma_prepare BUILD "TARGET..." [CONFIGURE-ARGUMENT...]
# Everything from a fresh machine to an installed tree in BUILD/install.
# NPRDMA_CONFIGURE_ARGS adds arguments for configure; if it has the source of
# UCX, that is not fetched. nprdma_setup holds arguments of setup.sh.
nprdma_setup=()
nprdma_prepare() {
    local build=$nprdma_top/$1 source=$nprdma_top/build/ucx-source
    local -a more targets
    read -r -a targets <<<"$2"
    shift 2
    read -r -a more <<<"${NPRDMA_CONFIGURE_ARGS-}"
    nprdma_own "$nprdma_top/build"
    nprdma_own "$build"
    "$nprdma_top/contrib/setup.sh" "${nprdma_setup[@]}"
    (
        flock 9
        if [[ " ${more[*]}" != *" --with-ucx-source="* ]]; then
            "$nprdma_top/contrib/ucx-source.sh" "$source"
            more=(--with-ucx-source="$source" "${more[@]}")
        fi
        nprdma_configure "$build" "${more[@]}" "$@"
        nprdma_install "$build" "${targets[@]}"
    ) 9>"$nprdma_top/build/.lock"
}

# Open MPI's own shared memory, as --mca btl has it: "vader" before version 5
nprdma_ob1_btl() {
    local version
    version=$(mpirun --version | sed -n '1s/.* //p')
    if [ "${version%%.*}" -ge 5 ]; then
        echo self,sm
    else
        echo self,vader
    fi
}

# nprdma_osu_for_mpich DIR: our osu_latency, osu_bw and osu_bibw for MPICH, made
# there. Returns 1 where it is not installed beside Open MPI, or does not run.
nprdma_osu_for_mpich() {
    local dir=$1 name
    local sources=$nprdma_top/osu-bench
    local -a parts=(buffer coll options pattern pt2pt report rma run)
    parts=("${parts[@]/#/$sources/}")
    parts=("${parts[@]/%/.c}")
    if ! command -v mpicc.mpich >/dev/null ||
        ! command -v mpirun.mpich >/dev/null; then
        return 1
    fi
    mkdir -p "$dir"
    for name in osu_latency osu_bw osu_bibw; do
        if [ -x "$dir/$name" ] &&
            [ -z "$(find "$sources" -newer "$dir/$name" -name '*.[ch]')" ]; then
            continue
        fi
        # -w: it warns of MPICH's own MPI_STATUSES_IGNORE
        if ! mpicc.mpich -w -O2 -I"$sources" -o "$dir/$name" \
            "$sources/$name.c" "${parts[@]}" 2>"$dir/log"; then
            echo "without MPICH, which makes no $name: see $dir/log" >&2
            return 1
        fi
    done
    if ! timeout -k 5 30 mpirun.mpich -n 2 "$dir/osu_latency" -i 1 -x 0 -m 1:1 \
        >"$dir/log" 2>&1 </dev/null; then
        echo "without MPICH, whose mpirun does not work: see $dir/log" >&2
        return 1
    fi
}

# nprdma_find_prefix: sets prefix, if it is empty, to what is built here for it
nprdma_find_prefix() {
    [ -z "$prefix" ] || return 0
    nprdma_prepare build all >&2
    prefix=$nprdma_top/build/install
}

# nprdma_find_cpus: sets cpus to the CPUs that we may use, two or more
nprdma_find_cpus() {
    local range cpu
    cpus=()
    for range in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
        for ((cpu = ${range%-*}; cpu <= ${range#*-}; ++cpu)); do
            cpus+=("$cpu")
        done
    done
    [ ${#cpus[@]} -ge 2 ] ||
        nprdma_die "one CPU (${cpus[*]}) is too few: two ranks need one each"
}
