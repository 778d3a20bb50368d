#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the Debian packages that building, testing and measuring need, as
# far as they are missing.
set -euo pipefail

packages=(
    autoconf automake libtool make gcc g++ dpkg-dev ca-certificates
    libucx-dev ucx-utils        # UCX, and how it was configured
    libibverbs-dev              # RDMA devices
    libmunge-dev munge          # who a client of files is
    libopenmpi-dev openmpi-bin  # benchmarks and MPI tests
    libmpich-dev mpich          # another MPI; mpicc and mpirun stay Open MPI's
    libgtest-dev                # UCT and UCP tests
    fio                         # a tool of storage people (test/files)
    hpcc                        # a real MPI application
    clang libclang-rt-dev       # fuzz targets
    clang-format shellcheck     # rules of the house (test/tidy)
    python3 git
    spin                        # the model of the paging protocol
    valgrind                    # instructions are counted (test/perf)
    man-db                      # the manual pages are looked at
    gnuplot-nox fonts-dejavu-core
    rpm rpmlint                 # packages of others (test/packages)
    util-linux procps binutils file
)

# The virtual RDMA lab
lab=(
    qemu-system-x86 mmdebstrap  # guests, and their root
    squashfs-tools-ng cpio xz-utils kmod socat
    libelf1 libssl3             # modules for their kernels
)

die() {
    echo "setup.sh: $*" >&2
    exit 1
}

list=no
for argument in "$@"; do
    case $argument in
    -h | --help)
        echo "Usage: setup.sh [--no-lab] [--list]"
        sed -n '3,4s/^# //p' "$0"
        echo
        printf '  %s\n' "${packages[@]}" "${lab[@]}" | fmt -w 76
        echo
        echo "  --no-lab  without those that only the virtual lab needs"
        echo "  --list    print their names, and install nothing"
        exit 0
        ;;
    --no-lab) lab=() ;;
    --list) list=yes ;;
    *) die "unknown argument '$argument': see --help" ;;
    esac
done
packages+=("${lab[@]}")
if [ "$list" = yes ]; then
    printf '%s\n' "${packages[@]}"
    exit 0
fi

if ! command -v dpkg-query >/dev/null; then
    die "this is no Debian: install the counterparts of: ${packages[*]}"
fi

# A newer Debian may have it under another name, which provides this one
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}, ${Provides}\n' |
    sed -n 's/^installed //p' | sed 's/ *([^)]*)//g' | tr -s ', ' '\n')
missing=()
for package in "${packages[@]}"; do
    if ! grep -qxF "$package" <<<"$installed"; then
        missing+=("$package")
    fi
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        die "not root and no sudo without a password: as root, run" \
            "apt-get install ${missing[*]}"
    fi
    as_root=(sudo -n)
fi

apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
    -o DPkg::Lock::Timeout=120)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing ${missing[*]}"
# One source that does not answer need not matter: the installation tells
"${apt[@]}" update >"$log" 2>&1 || true
if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" \
    >>"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    die "apt-get install failed (see above): install by hand: ${missing[*]}"
fi
