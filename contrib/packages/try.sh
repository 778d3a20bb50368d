#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the packages that deb.sh --check has made into this system, uses
# them as a user would, removes them; prints TAP. contrib/distro.sh --packages
# runs it in a root that it throws away.
# Functions are called by their names:
# shellcheck disable=SC2317
set -euo pipefail

debs=$(cd "$(dirname "$0")/../.." && pwd)/build/packages
count=0
failed=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

if [ "${NPRDMA_SYSTEM_IS_A_COPY-}" != yes ]; then
    echo "try.sh: this changes the system, and is for contrib/distro.sh" \
        "SUITE --packages alone" >&2
    exit 2
fi

# ok NAME COMMAND...: its output is the diagnosis
ok() {
    local name=$1
    shift
    count=$((count + 1))
    if "$@" >"$out" 2>&1 </dev/null; then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name"
        tail -n 20 "$out" | sed 's/^/# /'
        failed=1
    fi
}

says() { # says PATTERN COMMAND...
    local pattern=$1 said
    shift
    said=$("$@" 2>&1) || true
    echo "$said"
    grep -qE -e "$pattern" <<<"$said"
}

# Files of ours, other than the tree and what dpkg keeps about packages
leftovers() {
    find / -xdev \( -path /nprdma -o -path /proc -o -path /tmp \) -prune -o \
        -iname '*nprdma*' -print | grep . && return 1
    return 0
}

build_module() {
    local version kernel
    version=$(dkms status nprdma | sed -n 's|^nprdma[/, ]*\([^,: ]*\).*|\1|p' |
        head -n 1)
    for kernel in /lib/modules/*/build; do
        kernel=${kernel%/build}
        kernel=${kernel##*/}
        [ -e "/lib/modules/$kernel/build/Makefile" ] || continue
        dkms build "nprdma/$version" -k "$kernel" || {
            cat "/var/lib/dkms/nprdma/$version/build/make.log"
            return 1
        }
        find /var/lib/dkms/nprdma/ -name 'nprdma.ko*' | grep .
        return
    done
    echo "no kernel headers in /lib/modules"
    return 1
}

ok "lintian finds nothing" test ! -s "$debs/lintian"
[ ! -s "$debs/lintian" ] || sed 's/^/# /' "$debs/lintian"
ok "nothing of ours is here before" leftovers
mapfile -t files < <(find "$debs" -name '*.deb')
ok "they are installed, and nothing that they need is missing" \
    dpkg -i "${files[@]}"
ok "the launcher runs" says '^nprdma-run .*for UCX' nprdma-run --version
ok "UCX has the transport" says 'Transport: nprdma' nprdma-run ucx_info -d
ok "nprdma_info finds the device" says '^soft0 .* yes$' nprdma_info
ok "MPI runs over it, typed as it is in the README" \
    says '^4096 ' nprdma-run mpirun --oversubscribe -n 2 "$debs/osu_latency" \
    -m 8:4096
ok "its lanes are nprdma's" says 'nprdma/soft0' env UCX_LOG_LEVEL=info \
    nprdma-run mpirun --oversubscribe -n 2 "$debs/osu_latency" -m 8:8
# This root has no manuals of any package, by dpkg's settings
ok "manuals are in the packages" \
    says 'man1/nprdma-run.1.gz' dpkg -L nprdma-utils libnprdma-dev
ok "DKMS builds the module" build_module
mapfile -t names < <(dpkg-query -W -f '${Package}\n' '*nprdma*')
ok "they are removed" dpkg -P "${names[@]}"
ok "nothing of ours is left" leftovers
echo "1..$count"
exit "$failed"
