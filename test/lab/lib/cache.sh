# SPDX-License-Identifier: BSD-3-Clause
# What guests are made of: a root, kernels, initramfs images. Each is a
# directory of the cache that is named for its inputs.
# shellcheck shell=bash disable=SC2034

LAB_SUITE=bookworm
LAB_NEXT_SUITE=trixie
LAB_KERNELS="6.1 6.12 7 6.1-debug"
LAB_CACHE=${NPRDMA_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/nprdma-lab}

# Modules that the initramfs loads, in any order
LAB_BOOT_MODULES=(virtio_pci virtio_blk squashfs overlay 9p 9pnet_virtio)

# cached NAME NEEDED-MB INPUT COMMAND...: CACHED is the directory of the cache
# that the command makes, by running it in a new one, if it is not there for
# the same input. Source trees that differ have their own.
cached() {
    local name=$1 space=$2 input start=$SECONDS lock code=0
    input=$(sha256sum <<<"$3" | cut -c 1-12)
    shift 3
    CACHED=$LAB_CACHE/$name-$input
    if [ ! -d "$CACHED" ]; then
        exec {lock}>"$LAB_CACHE/.lock-$name"
        if ! flock -n "$lock"; then
            say "waiting for another lab that makes $name"
            flock "$lock"
        fi
        if [ ! -d "$CACHED" ]; then
            if [ "$(df -Pm "$LAB_CACHE" | awk 'NR == 2 { print $4 }')" -lt \
                "$space" ]; then
                die "$LAB_RC_SKIP" "no room for $name: $LAB_CACHE needs" \
                    "$space MB: free some, or set NPRDMA_LAB_CACHE"
            fi
            say "making $name (once)"
            CACHE_NEW=$(mktemp -d "$LAB_CACHE/.new-$name.XXXXXX")
            "$@" "$CACHE_NEW" || code=$?
            if [ "$code" -ne 0 ]; then
                die "$code" "${CACHE_ERROR:-cannot make $name: see above}"
            fi
            mv "$CACHE_NEW" "$CACHED"
            CACHE_NEW=
            say "made $name: $((SECONDS - start)) s"
        fi
        exec {lock}>&-
    fi
    touch "$CACHED"
}

# cache_use: as long as we or guests of ours live, nothing is removed that they
# may use. Removes what nobody uses any more.
cache_use() {
    mkdir -p "$LAB_CACHE" 2>/dev/null ||
        die "$LAB_RC_SKIP" "cannot make the cache $LAB_CACHE: set" \
            "NPRDMA_LAB_CACHE"
    exec {CACHE_USE}>"$LAB_CACHE/.in-use"
    if flock -n -x "$CACHE_USE"; then
        rm -rf --one-file-system "$LAB_CACHE"/.new-*
        # Of source trees that changed since
        find "$LAB_CACHE" -mindepth 1 -maxdepth 1 -mtime +14 \
            \( -name 'root-*' -o -name 'kernel-*' -o -name 'headers-*' \
            -o -name 'source-*' -o -name 'rxe-*' \) -exec rm -rf {} +
    fi
    flock -s "$CACHE_USE"
}

# cache_clean: only what is ours, in case the cache is not a directory of ours
cache_clean() {
    if [ ! -d "$LAB_CACHE" ]; then
        return
    fi
    exec {CACHE_USE}>"$LAB_CACHE/.in-use"
    flock -n -x "$CACHE_USE" ||
        die "$LAB_RC_USAGE" "another lab uses $LAB_CACHE: wait until it ends"
    rm -rf --one-file-system "$LAB_CACHE"/{accel,results,.in-use} \
        "$LAB_CACHE"/{root-,kernel-,headers-,source-,rxe-,.new-,.lock-}*
    rmdir "$LAB_CACHE" 2>/dev/null || true
}

# child COMMAND...: a long-running command that does not outlive the lab. It
# leads a group of its own, so that all of it can be ended.
child() {
    local code=0
    setpriv --pdeathsig TERM setsid "$@" <&0 &
    CHILD=$!
    wait "$CHILD" || code=$?
    CHILD=
    return "$code"
}

child_kill() {
    local tries
    [ -n "$CHILD" ] || return 0
    kill -TERM -- "-$CHILD" 2>/dev/null || true
    for ((tries = 0; tries < 100; ++tries)); do
        kill -0 -- "-$CHILD" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL -- "-$CHILD" 2>/dev/null || true
    wait "$CHILD" 2>/dev/null || true
}

root_packages() {
    sed '/^#/d' "$LAB_DIR/packages"
}

root_input() {
    root_packages
    declare -f root_make bootstrap
}

# bootstrap SUITE DIR PACKAGES [OPTION...]: DIR/root.tar, a small Debian with
# these; DIR/log says why not. A mirror may be old if our apt says so.
bootstrap() {
    local suite=$1 dir=$2 packages=$3 option
    shift 3
    option=$(apt-config dump Acquire::Check-Valid-Until)
    TMPDIR=$dir child mmdebstrap --quiet --variant=minbase \
        --include="$packages" \
        --aptopt='APT::Install-Recommends "false"' \
        ${option:+--aptopt="$option"} \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$@" "$suite" "$dir/root.tar" "$APT_SOURCES" >"$dir/log" 2>&1
}

root_make() {
    local dir=$1
    if ! apt_open "$LAB_SUITE" "$dir/apt"; then
        CACHE_ERROR=$APT_ERROR
        return "$LAB_RC_SKIP"
    fi
    # The hook is a shell command of mmdebstrap's
    # shellcheck disable=SC2016
    if ! bootstrap "$LAB_SUITE" "$dir" "$(root_packages | paste -s -d ,)" \
        --customize-hook='mkdir -p "$1/lab"' ||
        ! child tar2sqfs -q -c lz4 "$dir/root.img" <"$dir/root.tar" \
            >>"$dir/log" 2>&1; then
        tail -n 15 "$dir/log" >&2
        CACHE_ERROR="cannot make the guest's root: the end of the log is above"
        return 1
    fi
    rm -rf "$dir/root.tar" "$dir/apt"
}

# 7 is the newest that the backports of the next Debian have
kernel_suite() {
    case $1 in
    6.1) echo "$LAB_SUITE" ;;
    7) echo "$LAB_NEXT_SUITE-backports" ;;
    *) echo "$LAB_SUITE-backports" ;;
    esac
}

kernel_input() {
    kernel_suite "$1"
    declare -f kernel_packages unpack kernel_make initramfs_make
    echo "${LAB_BOOT_MODULES[*]}"
    cat "$LAB_DIR/guest/initramfs"
}

# depends PACKAGE PATTERN: on which packages whose name begins so
depends() {
    "${APT_CACHE[@]}" show "$1" 2>/dev/null | sed -n 's/^Depends: *//p' |
        tr -s ' ,' '\n' | grep -E "^$2" | sort -V -u || true
}

# kernel_packages SERIES: what a kernel consists of: one package, or, since
# Debian 13's backports, one that wants three others
kernel_packages() {
    local image
    image=$(depends linux-image-amd64 "linux-image-${1//./\\.}\\." |
        tail -n 1)
    if [ -n "$image" ]; then
        echo "$image"
        depends "$image" 'linux-(base|binary|modules)-[0-9]'
    fi
}

# unpack PACKAGE DIR [TAR-OPTION...]: where /bin and /lib are those of /usr,
# whichever of both the package has
unpack() {
    mkdir -p "$2"/usr/{bin,lib}
    ln -sfn usr/bin "$2/bin"
    ln -sfn usr/lib "$2/lib"
    dpkg-deb --fsys-tarfile "$1" |
        tar -x -C "$2" --keep-directory-symlink "${@:3}"
}

# The image is unpacked, not installed; DIR gets vmlinuz, modules/VERSION,
# initramfs, release
kernel_make() {
    local series=$1 dir=$2 suite package release modules
    local -a packages
    suite=$(kernel_suite "$series")
    if ! apt_open "$suite" "$dir/apt"; then
        CACHE_ERROR="no kernel $series: $APT_ERROR"
        return "$LAB_RC_SKIP"
    fi
    mapfile -t packages < <(kernel_packages "$series")
    if [ ${#packages[@]} -eq 0 ]; then
        CACHE_ERROR="no kernel $series: $suite has none"
        return "$LAB_RC_SKIP"
    fi
    if ! apt_fetch "$dir" "${packages[@]}" busybox-static; then
        CACHE_ERROR="no kernel $series: cannot fetch ${packages[0]} from the"
        CACHE_ERROR+=" mirror"
        return "$LAB_RC_SKIP"
    fi
    # What no virtual machine has
    for package in "$dir"/linux-*.deb; do
        unpack "$package" "$dir/image" \
            --exclude='./*lib/modules/*/kernel/sound' \
            --exclude='./*lib/modules/*/kernel/drivers/gpu' \
            --exclude='./*lib/modules/*/kernel/drivers/media' \
            --exclude='./*lib/modules/*/kernel/drivers/net/wireless' \
            --exclude='./*lib/modules/*/kernel/drivers/staging' || return 1
    done
    unpack "$dir"/busybox-static_*.deb "$dir/busybox" || return 1
    release=$(ls "$dir/image/lib/modules")
    echo "$release" >"$dir/release"
    modules=$dir/image/lib/modules/$release
    mv "$dir/image/boot/vmlinuz-$release" "$dir/vmlinuz" 2>/dev/null ||
        mv "$modules/vmlinuz" "$dir/vmlinuz" || return 1
    mv "$dir/image/boot/config-$release" "$dir/config" 2>/dev/null ||
        mv "$modules/config" "$dir/config" || return 1
    /sbin/depmod -b "$dir/image" "$release" || return 1
    initramfs_make "$dir" "$release" || return 1
    mv "$dir/image/lib/modules" "$dir/modules"
    rm -rf "$dir/image" "$dir/busybox" "$dir/apt" "$dir"/*.deb
}

# What modules for that kernel are built against, unpacked like the kernel.
# The one path in it that only an installation would have becomes relative.
headers_make() {
    local series=$1 release=$2 dir=$3 suite package
    local -a packages
    suite=$(kernel_suite "$series")
    package=linux-headers-$release
    if ! apt_open "$suite" "$dir/apt"; then
        CACHE_ERROR="no kernel headers $series: $APT_ERROR"
        return "$LAB_RC_SKIP"
    fi
    mapfile -t packages < <(depends "$package" 'linux-(headers|kbuild)-')
    if [ ${#packages[@]} -eq 0 ]; then
        CACHE_ERROR="no kernel headers $series: $suite has no $package (lab"
        CACHE_ERROR+=" clean fetches a newer kernel)"
        return "$LAB_RC_SKIP"
    fi
    if ! apt_fetch "$dir" "$package" "${packages[@]}"; then
        CACHE_ERROR="no kernel headers $series: cannot fetch $package"
        return "$LAB_RC_SKIP"
    fi
    for package in "$dir"/*.deb; do
        dpkg-deb -x "$package" "$dir" || return 1
    done
    # For make
    # shellcheck disable=SC2016
    sed -i -E 's|^include /usr/src/|include $(dir $(lastword $(MAKEFILE_LIST)))../|' \
        "$dir/usr/src/linux-headers-$release/Makefile" || return 1
    # cached() gives a directory
    # shellcheck disable=SC2115
    rm -rf "$dir/apt" "$dir/usr/share" "$dir"/*.deb
}

# Headers of another Debian's kernel need its compiler and its C library: DIR
# gets a /usr with both, and with what makefiles call. Unpacked, not installed.
toolchain_make() {
    local series=$1 package=linux-headers-$2 dir=$3 suite
    suite=$(kernel_suite "$series")
    if ! apt_open "$suite" "$dir/apt"; then
        CACHE_ERROR="no kernel headers $series: $APT_ERROR"
        return "$LAB_RC_SKIP"
    fi
    if [ -z "$(depends "$package" linux-)" ]; then
        CACHE_ERROR="no kernel headers $series: $suite has no $package (lab"
        CACHE_ERROR+=" clean fetches a newer kernel)"
        return "$LAB_RC_SKIP"
    fi
    if ! bootstrap "${suite%-backports}" "$dir" "$package,gcc,libc6-dev,make" \
        --include=bash,coreutils,dash,diffutils,findutils,grep,mawk,sed \
        --include=util-linux --variant=extract ||
        ! tar -x -f "$dir/root.tar" -C "$dir" --no-same-owner ./usr ||
        ! ln -s mawk "$dir/usr/bin/awk"; then
        tail -n 15 "$dir/log" >&2
        CACHE_ERROR="cannot make the compiler for kernel $series: the end of"
        CACHE_ERROR+=" the log is above"
        return 1
    fi
    rm -rf "$dir/root.tar" "$dir/apt"
}

# headers_prepare SERIES: HEADERS_DIR has the headers of the cached kernel, and
# TOOLCHAIN, if not empty, a /usr with what uses them
headers_prepare() {
    local release maker=headers
    cache_prepare "$1"
    TOOLCHAIN=
    if [ -d "$KERNEL_DIR/headers" ]; then
        HEADERS_DIR=$KERNEL_DIR/headers
        return
    fi
    case $(kernel_suite "$1") in
    "$LAB_SUITE"*) ;;
    *) maker=toolchain ;;
    esac
    release=$(cat "$KERNEL_DIR/release")
    cached "headers-$1" 1000 "$release $(declare -f "${maker}_make" bootstrap)" \
        "${maker}_make" "$1" "$release"
    HEADERS_DIR=$CACHED/usr/src/linux-headers-$release
    if [ "$maker" = toolchain ]; then
        TOOLCHAIN=$CACHED/usr
    fi
}

# toolchain_run COMMAND...: after headers_prepare, where modules are built. {}
# in it stands for the headers.
toolchain_run() {
    local headers=$HEADERS_DIR
    local -a inside=()
    if [ -n "$TOOLCHAIN" ]; then
        headers=${headers#"${TOOLCHAIN%/usr}"}
        # Its /usr in place of ours, for this command alone
        # shellcheck disable=SC2016
        inside=(unshare --mount --map-root-user sh -c
            'mount --bind "$0" /usr && exec "$@"' "$TOOLCHAIN")
    fi
    child "${inside[@]}" "${@//"{}"/"$headers"}"
}

# Directories of the kernel's source, or all of it, unpacked out of Debian's
# package of the very same version
source_make() {
    local series=$1 version=$2 directories=$3 dir=$4 suite directory
    local package
    local -a members=()
    package=linux-source-$(cut -d . -f 1,2 <<<"$version")
    suite=$(kernel_suite "$series")
    if ! apt_open "$suite" "$dir/apt"; then
        CACHE_ERROR="no kernel source $series: $APT_ERROR"
        return "$LAB_RC_SKIP"
    fi
    if ! apt_fetch "$dir" "$package=$version"; then
        CACHE_ERROR="no kernel source $series: cannot fetch $package of"
        CACHE_ERROR+=" version $version (lab clean fetches a newer kernel)"
        return "$LAB_RC_SKIP"
    fi
    for directory in $directories; do
        members+=("*/$directory")
    done
    mkdir "$dir/tree"
    dpkg-deb --fsys-tarfile "$dir"/*.deb |
        tar -x -O "./usr/src/$package.tar.xz" | xz -dc |
        tar -x -C "$dir/tree" --strip-components=1 --wildcards \
            "${members[@]}" || return 1
    rm -rf "$dir/apt" "$dir"/*.deb
}

# The version of Debian's package that the kernel in KERNEL_DIR came from
kernel_version() {
    file -b "$KERNEL_DIR/vmlinuz" | sed -n 's/.* Debian \([^ ]*\) .*/\1/p'
}

# source_prepare SERIES DIRECTORY...: SOURCE_DIR has these of the cached kernel
source_prepare() {
    local series=${1%-debug} version
    shift
    need file file
    cache_prepare "$series"
    version=$(kernel_version)
    cached "source-$series" 500 "$version $* $(declare -f source_make)" \
        source_make "$series" "$version" "$*"
    SOURCE_DIR=$CACHED/tree
}

rxe_input() {
    cat "$KERNEL_DIR/release"
    sha256sum <"$KERNEL_DIR/config" # that of 6.1-debug may change
    (cd "$LAB_TOP/contrib/rxe" &&
        sha256sum -- *.sh *.c *.h *-"${1%-debug}".patch)
}

# rxe_prepare SERIES: RXE_DIR has the modules that contrib/rxe builds
rxe_prepare() {
    need make make
    need gcc-12 gcc-12
    need patch patch
    cached "rxe-$1" 100 "$(rxe_input "$1")" \
        child "$LAB_TOP/contrib/rxe/build.sh" --kernel "$1"
    RXE_DIR=$CACHED
}

# busybox, and the modules in the order in which they are to be loaded
initramfs_make() {
    local dir=$1 release=$2 tree=$1/tree module path
    mkdir -p "$tree"/{bin,modules}
    cp "$dir/busybox/bin/busybox" "$tree/bin/" || return 1
    cp "$LAB_DIR/guest/initramfs" "$tree/init"
    chmod 755 "$tree/init"
    for module in "${LAB_BOOT_MODULES[@]}"; do
        /sbin/modprobe -d "$dir/image" -S "$release" -D "$module" |
            sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | awk '!seen[$0]++' >"$dir/order"
    while read -r path; do
        module=${path##*/}
        case $module in
        *.xz) xz -dc "$path" >"$tree/modules/${module%.xz}" ;;
        *) cp "$path" "$tree/modules/" ;;
        esac
        echo "${module%.xz}" >>"$tree/modules/order"
    done <"$dir/order"
    (cd "$tree" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) \
        >"$dir/initramfs" || return 1
    rm -rf "$tree"
}

# cache_prepare SERIES: all that guests of that kernel need, in ROOT_DIR and
# KERNEL_DIR
cache_prepare() {
    need qemu-system-x86_64 qemu-system-x86
    need mmdebstrap mmdebstrap
    need tar2sqfs squashfs-tools-ng
    need cpio cpio
    need xz xz-utils
    need modprobe kmod
    need dpkg-deb dpkg
    cache_use
    cached root 1500 "$(root_input)" root_make
    ROOT_DIR=$CACHED
    case $1 in
    *-debug) debug_prepare "$1" ;;
    *) kernel_prepare "$1" ;;
    esac
}

kernel_prepare() {
    cached "kernel-$1" 1000 "$(kernel_input "$1")" kernel_make "$1"
    KERNEL_DIR=$CACHED
}
