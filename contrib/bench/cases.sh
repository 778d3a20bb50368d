# SPDX-License-Identifier: BSD-3-Clause
# What is measured, and how one run of it is made. Needs: prefix, against
# (empty, or the nprdma that stands for stock), osu, cpus[2], quick, die,
# work (a directory), mpich (a directory of OSU programs for MPICH, or empty).
# shellcheck shell=bash disable=SC2154

bench_port=$((20000 + ($$ % 20000)))
bench_sizes=(1 4 16 64 256 1024 4096 16384 65536 262144 1048576 4194304 16777216
    67108864)

# bench_cases: one line each: CASE, and the seconds that a run of it takes
bench_cases() {
    local size
    printf '%s\n' 'tag_lat 0.7' 'ucp_am_lat 0.7' 'uct_am_lat 0.7' \
        'ucp_put_lat 0.7' 'tag_rate 0.8'
    for size in "${bench_sizes[@]}"; do
        echo "tag_bw:$size 0.7"
    done
    printf '%s\n' 'dirty 4' 'osu_latency 4' 'osu_bw 5' 'osu_bibw 5' \
        'osu_put_latency 3' 'osu_put_bw 4' 'osu_get_latency 3' \
        'osu_get_bw 4' 'osu_alltoall 5' 'idle 2' 'core 2' 'reg 0.5'
}

# bench_case_of NAME SIZE: what measures this row of the table and few others
bench_case_of() {
    case $1 in
    dirty_* | idle_* | core_*) echo "${1%%_*}:$2" ;;
    osu_* | tag_bw) echo "$1:$2" ;;
    reg_*) echo reg ;;
    *) echo "$1" ;;
    esac
}

# bench_sides CASE: what it is measured over. ob1 has windows of shared memory,
# which is not the memory that the others have here; ranks of MPICH do not give
# way where they are more than the CPUs, so that osu_alltoall takes minutes.
bench_sides() {
    printf '%s\n' nprdma stock again
    if [[ $1 == osu_* && $1 != osu_[gp][eu]t_* ]] && [ -z "$against" ]; then
        echo ob1
        if [ -n "$mpich" ] && [ "$1" != osu_alltoall ]; then
            echo mpich
        fi
    fi
}

# bench_is_nprdma SIDE
bench_is_nprdma() {
    [ "$1" = nprdma ] || [ -n "$against" ]
}

# bench_prefix SIDE: where its nprdma is installed
bench_prefix() {
    if [ "$1" = nprdma ]; then
        echo "$prefix"
    else
        echo "${against:-$prefix}"
    fi
}

# The sides get the same but for what this prints: one variable a line
bench_environment() {
    if bench_is_nprdma "$1"; then
        echo UCX_TLS=nprdma
        # As in ranks of MPI, which programs of UCX stand for here
        [ "$1" != nprdma ] || echo UCX_NPRDMA_EAGER_MAX=256k
    elif [ "$1" != ob1 ] && [ "$1" != mpich ]; then
        echo UCX_TLS=posix,cma,self
    fi
}

bench_launcher() {
    if bench_is_nprdma "$1"; then
        echo "$(bench_prefix "$1")/bin/nprdma-run"
    fi
}

# A TCP port on which nobody listens
bench_next_port() {
    local hex
    while :; do
        bench_port=$((bench_port + 1))
        hex=$(printf ':%04X ' "$bench_port")
        if ! grep -qs "$hex" /proc/net/tcp /proc/net/tcp6; then
            return 0
        fi
    done
}

bench_wait_listening() {
    local pid=$1 hex tries
    hex=$(printf ':%04X 00000000:0000 0A' "$bench_port")
    for ((tries = 0; tries < 1000; ++tries)); do
        if grep -qs "$hex" /proc/net/tcp; then
            return 0
        fi
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.01
    done
    return 1
}

# bench_perftest SIDE SERVER_CPU CLIENT_CPU [VARIABLE=VALUE...] -- ARGUMENT...
# Prints: the 50th percentile (us), MB/s, messages/s.
bench_perftest() {
    local side=$1 server_cpu=$2 client_cpu=$3 pid code=0 i
    local -a variables command served=()
    shift 3
    mapfile -t variables < <(bench_environment "$side")
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift

    bench_next_port
    mapfile -t command < <(bench_launcher "$side")
    command=(env "${variables[@]}" timeout -k 5 120 "${command[@]}"
        ucx_perftest -p "$bench_port" -f)
    # One that is built with MPI must be told that there is none
    if [[ $(ucx_perftest -h 2>&1) == *"MPI mode"* ]]; then
        command+=(-P 0)
    fi
    # From UCX 1.18 on a server does not learn the device from its client
    for ((i = 1; i < $#; ++i)); do
        case ${!i} in
        -x | -d) served+=("${@:i:2}") ;;
        esac
    done
    taskset -c "$server_cpu" "${command[@]}" "${served[@]}" \
        >"$work/server.log" 2>&1 </dev/null &
    pid=$!
    if ! bench_wait_listening "$pid"; then
        kill "$pid" 2>/dev/null || true
        tail -n 5 "$work/server.log" >&2
        die "ucx_perftest does not come up: see above"
    fi
    taskset -c "$client_cpu" "${command[@]}" 127.0.0.1 "$@" \
        >"$work/client.log" 2>&1 </dev/null || code=$?
    if [ "$code" -ne 0 ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        tail -n 10 "$work/client.log" "$work/server.log" >&2
        die "ucx_perftest $* failed over $side (exit code $code): see above"
    fi
    wait "$pid" || die "ucx_perftest's server failed over $side: $*"

    awk 'NF == 8 && !/[^0-9. ]/ { p50 = $2; mbs = $6; rate = $8; found = 1 }
         END { if (!found) exit 1; print p50, mbs, rate }' \
        "$work/client.log" || {
        tail -n 10 "$work/client.log" >&2
        die "ucx_perftest $* printed no result but what is above"
    }
}

# bench_ucp SIDE [VARIABLE=VALUE...] -- ARGUMENT...
bench_ucp() {
    local side=$1
    shift
    bench_perftest "$side" "${cpus[0]}" "${cpus[1]}" "$@"
}

# bench_uct SIDE ARGUMENT...
# UCT programs allocate by the transport's own setting; posix cannot do without
# its own memory.
bench_uct() {
    local side=$1
    local -a same=() over=(-x posix -d memory)
    shift
    if bench_is_nprdma "$side"; then
        over=(-x nprdma -d soft0)
        same=("UCX_NPRDMA_ALLOC=mmap,heap")
    fi
    bench_perftest "$side" "${cpus[0]}" "${cpus[1]}" "${same[@]}" -- \
        "${over[@]}" "$@"
}

# Messages of this size for about a tenth of a second: -n and -w
bench_counts() {
    local size=$1 count
    count=$((1600000000 / (size + 2000)))
    count=$((quick ? count / 4 : count))
    count=$((count < 8 ? 8 : count))
    echo "-n $count -w $((count / 10 + 2))"
}

# bench_osu SIDE PROGRAM [SIZE]
bench_osu() {
    local side=$1 program=$2 size=${3-} ranks=2
    local -a command variables arguments=() binding=(--bind-to core
        --map-by core) mca=(--mca pml ucx --mca osc ucx
        --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any)
    if [ "$side" = ob1 ]; then
        mca=(--mca pml ob1 --mca btl "$(nprdma_ob1_btl)")
    fi
    if [ "$program" = osu_alltoall ]; then
        # Two a core
        ranks=4
        binding=(--oversubscribe --bind-to none)
        arguments=(-m 1:65536)
    elif [[ $program == osu_*bw || $program == osu_*latency ]]; then
        arguments=(-m 1:16777216)
    fi
    if [ -n "$size" ]; then
        arguments=(-m "$size:$size")
    fi
    mapfile -t variables < <(bench_environment "$side")
    mapfile -t command < <(bench_launcher "$side")
    command+=(mpirun "${mca[@]}" "${binding[@]}" -n "$ranks" "$osu/$program")
    if [ "$side" = mpich ]; then
        command=(mpirun.mpich -bind-to core -n "$ranks" "$mpich/$program")
    fi
    if [ "$quick" = 1 ]; then
        arguments+=(-i 100 -x 10)
    fi
    # Two digits are 10 % of what 8 bytes take
    if [ "$side" = mpich ] || [ "$osu" = "$prefix/libexec/nprdma/osu" ]; then
        arguments+=(--digits 4)
    fi
    if ! env "${variables[@]}" UCX_ALLOC_PRIO=mmap,heap \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        timeout -k 5 300 "${command[@]}" "${arguments[@]}" \
        >"$work/osu.log" 2>"$work/osu.err" </dev/null; then
        tail -n 10 "$work/osu.log" "$work/osu.err" >&2
        die "$program failed over $side: see above"
    fi
    awk -v name="$program" '/^[0-9]/ { print name, $1, $2 }' "$work/osu.log"
}

# bench_dirty SIDE [SIZE]
bench_dirty() {
    local side=$1
    local -a sizes=("${bench_sizes[@]}")
    [ -z "${2-}" ] || sizes=("$2")
    local -a command variables
    mapfile -t variables < <(bench_environment "$side")
    mapfile -t command < <(bench_launcher "$side")
    if ! env "${variables[@]}" timeout -k 5 120 "${command[@]}" \
        "$(bench_prefix "$side")/libexec/nprdma/bench/dirty_bw" \
        -c "${cpus[0]},${cpus[1]}" -b $((quick ? 16 : 128)) \
        "${sizes[@]}" >"$work/dirty.log"; then
        die "dirty_bw failed over $side: see above"
    fi
    awk '{ print "dirty_stream", $1, $2; print "dirty_single", $1, $3 }' \
        "$work/dirty.log"
}

# Registering is a matter of one process; stock's shared memory has nothing to
# compare with
bench_reg() {
    local from
    if bench_is_nprdma "$1"; then
        from=$(bench_prefix "$1")
        env UCX_TLS=nprdma timeout -k 5 60 taskset -c "${cpus[0]}" \
            "$from/bin/nprdma-run" "$from/libexec/nprdma/bench/reg" \
            >"$work/reg.log" || die "reg failed: see above"
        awk '{ print "reg_" $1, ($1 ~ /^pair/) ? "4096" : "68719476736", $2 }' \
            "$work/reg.log"
    fi
}

# bench_run SIDE CASE: one run; prints lines "NAME SIZE VALUE"
bench_run() {
    local side=$1 case=${2%%:*} size="" out domain=md:posix
    local -a counts same=("UCX_ALLOC_PRIO=mmap,heap")
    local lat_count=$((quick ? 50000 : 500000))
    [[ $2 != *:* ]] || size=${2#*:}
    case $case in
    tag_lat | ucp_am_lat)
        out=$(bench_ucp "$side" "${same[@]}" -- -t "$case" -s 8 \
            -n "$lat_count")
        echo "$case 8 ${out%% *}"
        ;;
    uct_am_lat)
        out=$(bench_uct "$side" -t am_lat -D short -s 8 -n "$lat_count")
        echo "$case 8 ${out%% *}"
        ;;
    ucp_put_lat)
        # On memory that each side's own transport allocates
        if bench_is_nprdma "$side"; then
            domain=md:nprdma
        fi
        out=$(bench_ucp "$side" "UCX_ALLOC_PRIO=$domain" -- -t ucp_put_lat \
            -s 8 -n "$lat_count")
        echo "$case 8 ${out%% *}"
        ;;
    tag_rate)
        out=$(bench_ucp "$side" "${same[@]}" -- -t tag_bw -s 8 \
            -n $((lat_count * 4)))
        echo "$case 8 ${out##* }"
        ;;
    tag_bw)
        read -r -a counts < <(bench_counts "$size")
        out=$(bench_ucp "$side" "${same[@]}" -- -t tag_bw -s "$size" \
            "${counts[@]}")
        out=${out#* }
        # Of small messages MB/s has too few digits
        awk -v size="$size" -v mbs="${out% *}" -v rate="${out#* }" \
            'BEGIN { print "tag_bw", size,
                     size < 65536 ? rate * size / 1048576 : mbs }'
        ;;
    idle | core) bench_one_sided "$side" "$case" "$size" ;;
    dirty) bench_dirty "$side" "$size" ;;
    osu_*) bench_osu "$side" "$case" "$size" ;;
    reg) bench_reg "$side" ;;
    *) die "there is no case '$case'" ;;
    esac
}

# bench_one_sided SIDE CASE [SIZE]. idle: the target sleeps. core: it polls, on
# the initiator's CPU.
bench_one_sided() {
    local side=$1 case=$2 transport=cma
    local -a command variables sizes=(65536 1048576 16777216)
    local -a options=(-c "${cpus[1]},${cpus[0]}")
    [ -z "${3-}" ] || sizes=("$3")
    if bench_is_nprdma "$side"; then
        transport=nprdma
    fi
    if [ "$case" = core ]; then
        options=(-p -c "${cpus[1]},${cpus[1]}")
    fi
    mapfile -t variables < <(bench_environment "$side")
    mapfile -t command < <(bench_launcher "$side")
    if ! env "${variables[@]}" timeout -k 5 120 "${command[@]}" \
        "$prefix/libexec/nprdma/bench/one_sided" "${options[@]}" \
        -b $((quick ? 16 : 128)) "$transport" "${sizes[@]}" \
        >"$work/one_sided.log"; then
        die "one_sided failed over $side: see above"
    fi
    sed "s/^/${case}_/" "$work/one_sided.log"
}
