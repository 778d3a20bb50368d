#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Nonsense in every UCX_NPRDMA_* variable: one clear line, no crash, no hang.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

run_here 30 ucx_info -c
mapfile -t names < <(grep -oE '^UCX_NPRDMA_[A-Z0-9_]+' "$TAP_OUT" | sort -u)
if [ "${#names[@]}" -gt 0 ]; then
    tap_ok "ucx_info -c shows ${#names[@]} variables"
else
    tap_not_ok "ucx_info -c shows the variables" "$TAP_OUT"
fi

for name in "${names[@]}"; do
    # The name of a file may be anything (test/tools/trace.t)
    [ "$name" != UCX_NPRDMA_TRACE ] || continue
    run 60 env "$name=!nonsense" "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/fail_data"
    if [ "$RC" -lt 124 ] &&
        grep -qE "!nonsense|${name#UCX_}" "$TAP_OUT"; then
        tap_ok "$name=!nonsense"
    else
        echo "exit code $RC; a line with the variable or the value wanted" \
            >> "$TAP_OUT"
        tap_not_ok "$name=!nonsense" "$TAP_OUT"
    fi

    for value in -7 0 99999999999999999999 ''; do
        run 60 env "$name=$value" "${RUN_PREFIX[@]}" \
            "$NPRDMA_BUILD/fail_data"
        if [ "$RC" -eq 0 ]; then
            tap_ok "$name='$value' works"
        else
            tap_expect_error "$name='$value' is refused with a line" \
                "${name#UCX_}|'$value'"
        fi
    done
done

# Nearly right: each process names variable, value and what there is, once
for mistake in WRITE_CHECK=readbak:readback FAULT_MODE=retries:retry \
    ORDER=strikt:strict SERVICE=thread:event MR_SCOPE=exakt:exact \
    SOFT_TLB=pages:page INLINE=1kk:kb; do
    setting=${mistake%:*} name=${mistake%%=*} value=${setting#*=}
    run 60 env "UCX_NPRDMA_$setting" "${RUN_PREFIX[@]}" \
        "$NPRDMA_BUILD/fail_data"
    line="Invalid value for $name: '$value'. Expected: .*${mistake#*:}"
    tap_expect_error "$setting is refused, with what there is" "$line"
    # awk's own
    # shellcheck disable=SC2016
    tap_check "$setting: one line of each process" \
        awk -v line="$line" '$0 ~ line { match($0, /\[[^]]*:[0-9]+ *:/)
                                ++seen[substr($0, RSTART, RLENGTH)] }
            END { for (i in seen) if (seen[i] > 1) exit 1 }' "$TAP_OUT"
done

# Those of RDMA devices, whether there is one or not; builds without them lack
# the check
if grep -q "^NPRDMA_DEFS.*HAVE_VERBS" "$NPRDMA_BUILD/Makefile"; then
    for setting in VERBS_RETRY_COUNT=8 VERBS_QUEUE=1 CONNECT_TIMEOUT=0 \
        UNLOAD_MAX=2K UNLOAD_MAX=inf; do
        run 60 env "UCX_NPRDMA_$setting" "${RUN_PREFIX[@]}" \
            "$NPRDMA_BUILD/fail_data"
        tap_expect_error "$setting is refused" "${setting%=*} is ${setting#*=}"
    done
fi

if [ -e /sys/class/infiniband ]; then
    tap_skip "UNLOAD where nothing asks it is said" "there is an RDMA device"
else
    run 60 env UCX_NPRDMA_UNLOAD=auto "${RUN_PREFIX[@]}" \
        "$NPRDMA_BUILD/fail_data"
    tap_check "UNLOAD where nothing asks it is said" \
        grep -q 'UNLOAD=auto changes nothing here' "$TAP_OUT"
    run 60 env UCX_NPRDMA_UNLOAD=auto UCX_NPRDMA_SOFT_TLB=page \
        "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/fail_data"
    tap_check "but not where soft0 does" \
        bash -c "! grep -q 'changes nothing' '$TAP_OUT'"
fi

run 60 env UCX_NPRDMA_RINGSIZE=1 "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/fail_data"
tap_expect_success "a mistyped name does no harm"
tap_check "and is reported" grep -q 'unused.*UCX_NPRDMA_RINGSIZE' "$TAP_OUT"

tap_done
