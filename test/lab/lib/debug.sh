# SPDX-License-Identifier: BSD-3-Clause
# A kernel that looks for mistakes: built from Debian's source of the kernel it
# stands beside, with test/lab/debug.config. SERIES is that kernel's and -debug.
# shellcheck shell=bash disable=SC2034

debug_input() {
    kernel_version
    declare -f debug_make debug_headers source_make initramfs_make
    cat "$LAB_DIR/debug.config" "$LAB_DIR/guest/initramfs"
}

# What is set there and was not taken, for want of something else
debug_missing() {
    grep -E '^CONFIG_.*=[ym]' "$LAB_DIR/debug.config" | grep -vxFf "$1" || true
}

# DIR as of kernel_make, and headers
debug_make() {
    local series=${1%-debug} version=$2 dir=$3 release missing
    local tree=$dir/source/tree
    local -a build=(child nice -n 19 make -s -C "$tree" -j "$(nproc)")
    mkdir "$dir/source" "$dir/image"
    source_make "$series" "$version" '' "$dir/source" || return
    "${build[@]}" KCONFIG_ALLCONFIG="$LAB_DIR/debug.config" allnoconfig \
        >"$dir/log" 2>&1 || return 1
    missing=$(debug_missing "$tree/.config")
    if [ -n "$missing" ]; then
        CACHE_ERROR="debug.config asks for what this kernel lacks: $missing"
        return 1
    fi
    if ! "${build[@]}" bzImage modules >>"$dir/log" 2>&1 ||
        ! "${build[@]}" INSTALL_MOD_PATH="$dir/image" INSTALL_MOD_STRIP=1 \
            modules_install >>"$dir/log" 2>&1; then
        tail -n 15 "$dir/log" >&2
        CACHE_ERROR="cannot build the kernel: the end of the log is above"
        return 1
    fi
    release=$(cat "$tree/include/config/kernel.release")
    echo "$release" >"$dir/release"
    cp "$tree/arch/x86/boot/bzImage" "$dir/vmlinuz"
    cp "$tree/.config" "$dir/config"
    mkdir "$dir/busybox"
    gzip -dc "$KERNEL_DIR/initramfs" |
        (cd "$dir/busybox" && cpio -id --quiet bin/busybox) || return 1
    initramfs_make "$dir" "$release" || return 1
    rm -f "$dir/image/lib/modules/$release"/{build,source}
    mv "$dir/image/lib/modules" "$dir/modules"
    debug_headers "$tree" "$dir/headers" || return 1
    rm -rf "$dir"/{source,image,busybox}
}

# What modules are built against, as Debian's packages of headers have it
debug_headers() {
    mkdir "$2"
    (
        cd "$1" || exit
        find . -maxdepth 1 \( -name 'Makefile*' -o -name .config \
            -o -name Module.symvers \)
        find arch/x86 -maxdepth 1 -name 'Makefile*'
        find include scripts arch/x86/include ! -name '*.o' ! -name '*.cmd'
        echo tools/objtool/objtool
    ) | (cd "$1" && cpio -pdm --quiet "$2")
}

# debug_prepare SERIES: KERNEL_DIR, as cache_prepare does
debug_prepare() {
    need make make
    need file file
    need gcc gcc
    need flex flex
    need bison bison
    need bc bc
    [ -e /usr/include/libelf.h ] ||
        die "$LAB_RC_SKIP" "libelf.h is missing: apt-get install libelf-dev"
    kernel_prepare "${1%-debug}"
    cached "kernel-$1" 4000 "$(debug_input)" \
        debug_make "$1" "$(kernel_version)"
    KERNEL_DIR=$CACHED
}
