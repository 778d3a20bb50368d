# SPDX-License-Identifier: BSD-3-Clause
# Jobs: what their headers ask for, how one is run in guests that are up, and
# how the kernel's log is judged.
# shellcheck shell=bash disable=SC2034

# Lines of a kernel's log that fail a job which does not expect them
LAB_BAD='BUG:|BUG at |WARNING:|Kernel panic|Oops|[Gg]eneral protection fault:'
LAB_BAD+='|unable to handle|KASAN|KCSAN|UBSAN|KFENCE|INFO: possible'
LAB_BAD+='|INFO: inconsistent|INFO: suspicious|possible .* deadlock'
LAB_BAD+='|lockdep|suspicious RCU|soft lockup|hard LOCKUP'
LAB_BAD+='|detected stall|self-detected stall|DMAR:.*[Ff]ault|DMAR: DRHD:'
LAB_BAD+='|INFO: task .* blocked for more|hung_task:|refcount_t:'
LAB_BAD+='|list_(add|del) corruption|Out of memory|oom-kill|Bad page'
LAB_BAD+='|page allocation failure|pagealloc:|scheduling while atomic'
LAB_BAD+='|NETDEV WATCHDOG'

# header FILE KEY [DEFAULT]: the value of "# lab-KEY: VALUE", one line each
header() {
    local value
    value=$(sed -n "/^#/!q; s/^# lab-$2: *//p" "$1")
    echo "${value:-${3-}}"
}

job_path() {
    local dir
    if [[ $1 == */* ]] && [ -f "$1" ]; then
        echo "$1"
        return
    fi
    for dir in "${LAB_JOB_DIRS[@]}"; do
        if [ -f "$dir/$1" ]; then
            echo "$dir/$1"
            return
        fi
    done
    die "$LAB_RC_USAGE" "there is no job '$1': lab run --list shows what" \
        "there is"
}

jobs_list() {
    local dir file
    for dir in "${LAB_JOB_DIRS[@]}"; do
        for file in "$dir"/*; do
            printf '%-14s %s\n' "${file##*/}" "$(header "$file" job)"
        done
    done
}

# number WHAT VALUE: dies unless it is one
number() {
    if ! [[ $2 =~ ^[1-9][0-9]*$ ]]; then
        die "$LAB_RC_USAGE" "$1 is a number, not '$2'"
    fi
}

# job_asks FILE: sets GUESTS, ... to what a job wants; options come first
job_asks() {
    local file=$1 device
    GUESTS=${OPT_GUESTS:-$(header "$file" guests 1)}
    KERNEL=${OPT_KERNEL:-$(header "$file" kernel 6.1)}
    IOMMU=${OPT_IOMMU:-$(header "$file" iommu off)}
    MEMORY=${OPT_MEMORY:-$(header "$file" memory 1024)}
    CPUS=${OPT_CPUS:-$(header "$file" cpus 1)}
    CLOCK=${OPT_CLOCK:-$(header "$file" clock host)}
    ZRAM=${OPT_ZRAM:-$(header "$file" zram 512)}
    APPEND=${OPT_APPEND:-$(header "$file" append)}
    DEVICES="$(header "$file" devices) $OPT_DEVICES"
    DEVICES=$(tr -s ' ' '\n' <<<"$DEVICES" | sed '/^$/d' | sort -u |
        paste -s -d ' ')
    number guests "$GUESTS"
    number memory "$MEMORY"
    number cpus "$CPUS"
    number zram "$ZRAM"
    if [ "$GUESTS" -gt 8 ]; then
        die "$LAB_RC_USAGE" "8 guests at most, not $GUESTS"
    fi
    case " $LAB_KERNELS " in
    *" $KERNEL "*) ;;
    *) die "$LAB_RC_USAGE" "no kernel '$KERNEL': there are $LAB_KERNELS" ;;
    esac
    case $IOMMU in
    off | on | passthrough) ;;
    *) die "$LAB_RC_USAGE" "the IOMMU is off, on or passthrough, not $IOMMU" ;;
    esac
    case $CLOCK in
    host | instructions) ;;
    *) die "$LAB_RC_USAGE" "the clock is host or instructions, not $CLOCK" ;;
    esac
    for device in $DEVICES; do
        case $device in
        rxe | rxe-dmabuf | zram | edu) ;;
        *) die "$LAB_RC_USAGE" "no device '$device': rxe, rxe-dmabuf, zram," \
            "edu" ;;
        esac
    done
}

# Jobs with the same answer can share a boot; it has the devices of all
job_key() {
    local rxe=stock
    job_asks "$1"
    case " $DEVICES " in
    *" rxe-dmabuf "*) rxe=ours ;;
    esac
    echo "$rxe $KERNEL $GUESTS $IOMMU $MEMORY $CPUS $CLOCK $ZRAM $APPEND"
}

# trees_find: what guests see of the host besides their root
trees_find() {
    local dir
    if [ -d "$BUILD" ]; then
        BUILD=$(cd "$BUILD" && pwd -P)
    elif [ "$OPT_BUILD" = yes ]; then
        die "$LAB_RC_USAGE" "there is no build directory $BUILD"
    fi
    PREFIX=$BUILD/install
    if [ "$OPT_BUILD" = no ] && [ -n "${NPRDMA_PREFIX-}" ]; then
        PREFIX=$NPRDMA_PREFIX
    fi
    TREES=("$LAB_TOP")
    for dir in "$BUILD" "$PREFIX" "${OPT_MOUNTS[@]}"; do
        if [ -d "$dir" ] && ! tree_inside "$dir"; then
            TREES+=("$dir")
        fi
    done
}

tree_inside() {
    local tree
    for tree in "${TREES[@]}"; do
        case $1/ in
        "$tree"/*) return 0 ;;
        esac
    done
    return 1
}

trees_write() {
    local i
    for i in "${!TREES[@]}"; do
        echo "tree$i ${TREES[i]}"
    done >"$RUN/share/trees"
}

# send GUEST ID: standard input becomes a command of that guest
send() {
    local dir=$RUN/share/g$1
    cat >"$dir/in/$2.new"
    mv "$dir/in/$2.new" "$dir/in/$2.cmd"
}

# await GUEST ID SECONDS: prints what a command says until it ends. CODE is
# its exit code, or ours, with a reason in JOB_ERROR.
await() {
    local dir=$RUN/share/g$1 id=$2 limit=$3 start=$SECONDS dead fd=
    JOB_ERROR=
    CODE=
    while [ -z "$CODE" ]; do
        if [ -z "$fd" ] && [ -e "$dir/out/$id" ]; then
            exec {fd}<"$dir/out/$id"
        fi
        if [ -e "$dir/out/$id.rc" ]; then
            CODE=$(cat "$dir/out/$id.rc")
        else
            dead=$(guests_dead)
            if [ -n "$dead" ]; then
                CODE=$LAB_RC_GUEST
                JOB_ERROR="guest $dead died"
            elif [ $((SECONDS - start)) -ge "$limit" ]; then
                CODE=$LAB_RC_TIME
                JOB_ERROR="stopped after $limit s, its time limit"
            else
                sleep 0.1
            fi
        fi
        if [ -n "$fd" ]; then
            cat <&"$fd"
        fi
    done
    if [ -n "$fd" ]; then
        exec {fd}<&-
    fi
}

# mark TEXT: a line in the kernel's log of all guests, seen on their consoles
mark() {
    local n tries
    for ((n = 1; n <= GUESTS; ++n)); do
        echo "echo 'lab: $1' >/dev/kmsg" | send "$n" "mark-${1// /-}"
    done
    for ((n = 1; n <= GUESTS; ++n)); do
        for ((tries = 0; tries < 100; ++tries)); do
            if grep -aq "lab: $1" "$RUN/share/g$n/console" ||
                [ -n "$(guests_dead)" ]; then
                break
            fi
            sleep 0.1
        done
    done
}

# kernel_log N NAME SERIAL: a guest's log of one job; the first one of a boot
# has the boot as well
kernel_log() {
    tr -d '\r' <"$RUN/share/g$1/console" |
        awk -v first="$3" -v begin="lab: begin $2 $3" -v end="lab: end $2 $3" '
        BEGIN { show = first == 1 }
        index($0, begin) { show = 1 }
        show { print }
        index($0, end) { exit }'
}

# log_judge FILE...: prints what is wrong with kernel logs
log_judge() {
    local expected allowed
    local -a patterns
    mapfile -t patterns <<<"$(header "$JOB_FILE" expect)"
    for expected in "${patterns[@]}"; do
        if [ -n "$expected" ] && ! grep -aqE -e "$expected" "$@"; then
            echo "the kernel log lacks an expected line: $expected"
        fi
    done
    allowed=$({
        header "$JOB_FILE" expect
        header "$JOB_FILE" allow
        echo 'lab: (begin|end) '
        echo 'RCU lockdep checking is enabled'
    } | sed '/^$/d' | paste -s -d '|')
    grep -ahE -e "$LAB_BAD" "$@" | grep -avE -e "$allowed" | head -n 20 || true
}

# The command that a guest is sent for a job
job_command() {
    local name=$1 limit
    shift
    limit=$(header "$JOB_FILE" limit)
    if [ -n "$limit" ]; then
        # For the shell in the guest
        # shellcheck disable=SC2016
        printf '%s\n' 'group=/sys/fs/cgroup/job' 'mkdir -p $group' \
            'echo +memory >/sys/fs/cgroup/cgroup.subtree_control' \
            "echo $((limit * 1048576)) >\$group/memory.max" \
            'echo $$ >$group/cgroup.procs'
    fi
    printf 'export LAB_GUESTS=%q LAB_KERNEL=%q LAB_ACCEL=%q LAB_IOMMU=%q\n' \
        "$GUESTS" "$KERNEL" "$ACCEL" "$IOMMU"
    printf 'export NPRDMA_SRC=%q NPRDMA_BUILD=%q NPRDMA_PREFIX=%q\n' \
        "$LAB_TOP" "$BUILD" "$PREFIX"
    printf 'export LAB_OUT=/lab/results/%q\n' "$name"
    local setting
    for setting in "${OPT_ENV[@]}"; do
        printf 'export %q\n' "$setting"
    done
    printf 'cd %q 2>/dev/null || cd /root\n' "$PWD"
    printf 'exec'
    printf ' %q' "$@"
    echo
}

# job_run NAME FILE COMMAND...: in guests that are up. CODE is the result;
# JOB_ERROR is why it failed if the job itself did not say.
job_run() {
    local name=$1 n problems seconds start=$SECONDS
    JOB_FILE=$2
    shift 2
    local -a logs=()
    mkdir -p "$OUT/$name" "$RUN/share/results/$name"
    rm -f "$OUT/$name/problems"
    JOB_SERIAL=$((JOB_SERIAL + 1))
    mark "begin $name $JOB_SERIAL"
    seconds=${OPT_TIME:-$(header "$JOB_FILE" time 120)}
    job_command "$name" "$@" | send 1 "job-$JOB_SERIAL"
    if [ "$OPT_TAP" = yes ]; then
        await 1 "job-$JOB_SERIAL" "$seconds" >"$OUT/$name/output"
    else
        await 1 "job-$JOB_SERIAL" "$seconds" > >(tee "$OUT/$name/output")
        # The last of it is out before anything else is said
        wait $! || true
    fi
    if [ "$CODE" = "$LAB_RC_TIME" ] && [ -n "$JOB_ERROR" ]; then
        why_hung "$OUT/$name"
    else
        mark "end $name $JOB_SERIAL"
    fi
    for ((n = 1; n <= GUESTS; ++n)); do
        kernel_log "$n" "$name" "$JOB_SERIAL" >"$OUT/$name/kernel.$n"
        logs+=("$OUT/$name/kernel.$n")
    done
    cp -R "$RUN/share/results/$name/." "$OUT/$name/"
    problems=$(log_judge "${logs[@]}")
    if [ -n "$problems" ]; then
        echo "$problems" >"$OUT/$name/problems"
        JOB_ERROR="${JOB_ERROR:+$JOB_ERROR; }the kernel log is not clean"
        if [ "$CODE" -eq 0 ] || [ "$CODE" -eq "$LAB_RC_SKIP" ]; then
            CODE=$LAB_RC_LOG
        fi
    fi
    echo "$CODE" >"$OUT/$name/code"
    JOB_SECONDS=$((SECONDS - start))
}

# What guests that are about to be stopped were doing
why_hung() {
    local n code=$CODE error=$JOB_ERROR
    for ((n = 1; n <= GUESTS; ++n)); do
        echo "ps -eo pid,stat,wchan:24,args; echo w >/proc/sysrq-trigger" |
            send "$n" hung
        await "$n" hung 5 >"$1/processes.$n"
    done
    CODE=$code
    JOB_ERROR=$error
}
