#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Worlds from seeds over simulated devices: those that were wrong once, fresh
# ones for a while, and deliberate faults, each of which must be found; prints
# TAP.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sim=$NPRDMA_BUILD/test_sim
seconds=${NPRDMA_SIM_SECONDS:-25}
count=0

if [ ! -x "$sim" ]; then
    echo "1..0 # SKIP built without libibverbs"
    exit 0
fi

# NAME COMMAND...: ok if that succeeds; what it says is a comment
check() {
    local name=$1 out result=ok
    shift
    out=$("$@" 2>&1) || result="not ok"
    count=$((count + 1))
    echo "$result $count - $name"
    grep -v '^ok\|^1\.\.\|^$' <<<"$out" | sed 's/^\([^#]\)/# \1/' || true
}

# DEVICE MUTANT: is it found? Other seeds than the fresh ones: it always is.
found() {
    local said
    if said=$("$sim" --device "$1" --mutant "$2" --seed 1 --seconds 120 2>&1)
    then
        return 1
    fi
    grep -q '^not ok' <<<"$said" # and not: there is no such fault
}

check "seeds that were wrong once" "$sim" --kept "$here/kept.txt"
for device in soft views leases unloading; do
    check "$device: fresh seeds" "$sim" --device $device --seconds "$seconds"
done

for device in soft views leases unloading; do
    check "$device: every event at every moment, and pairs of them" \
        "$sim" --device $device --seed 1 --sweep 300
done

while read -r mutant devices; do
    for device in $devices; do
        check "$device: $mutant is found" found "$device" "$mutant"
    done
done <<'EOF'
READ_UNCHECKED soft views
WRITE_UNCONFIRMED soft views
LOCAL_UNCHECKED soft views
BATCH_COUNTS_OLDER views
MESSAGE_OVERTAKEN views unloading
UNLOADED_FORGOTTEN unloading
CHECK_BEFORE_DATA soft
COUNT_NOT_BUMPED soft
ORDER_IGNORED soft views leases
ANSWER_OF_ANOTHER views leases
LEASE_TOO_EARLY views leases
REPLAY_TAKEN views leases unloading
REPLAY_LOSES views leases
ATOMIC_AGAIN views leases
FENCE_LETS_PASS soft views leases
EOF
echo "1..$count"
