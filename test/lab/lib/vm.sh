# SPDX-License-Identifier: BSD-3-Clause
# Guests: how QEMU is started, watched and stopped. A run directory holds all
# that one set of guests shares with the host.
# shellcheck shell=bash disable=SC2034

LAB_BOOT_LIMIT=${NPRDMA_LAB_BOOT_LIMIT:-120}
LAB_PIDS=()

# run_make: RUN is a new directory; short, for unix sockets are in it
run_make() {
    local old
    for old in "${TMPDIR:-/tmp}"/nplab.??????; do
        run_sweep "$old"
    done
    RUN=$(mktemp -d "${TMPDIR:-/tmp}/nplab.XXXXXX")
    echo $$ >"$RUN/owner"
    mkdir "$RUN/share"
    cp -RP "$LAB_DIR/guest" "$RUN/share/"
}

# modules_write: what guests load in place of their kernel's own
modules_write() {
    case " $DEVICES " in
    *" rxe-dmabuf "*)
        rxe_prepare "$KERNEL"
        cp -R "$RXE_DIR" "$RUN/share/rxe"
        ;;
    esac
}

# What a lab left that was killed: its guests died with it
run_sweep() {
    local dir=$1 owner
    if [ -O "$dir" ] && owner=$(cat "$dir/owner" 2>/dev/null) &&
        [ ! -e "$dir/kept" ] && ! kill -0 "$owner" 2>/dev/null; then
        rm -rf "$dir"
    fi
}

# accel_choose: sets ACCEL. Only TCG counts instructions. That KVM is there does
# not mean that it boots: it is tried once for each kernel and each start of
# this machine.
accel_choose() {
    local dir=$KERNEL_DIR key cache=$LAB_CACHE/accel
    if [ "$CLOCK" = instructions ]; then
        ACCEL=tcg
        return
    fi
    case ${NPRDMA_LAB_ACCEL:-auto} in
    kvm | tcg)
        ACCEL=$NPRDMA_LAB_ACCEL
        return
        ;;
    auto) ;;
    *) die "$LAB_RC_USAGE" "NPRDMA_LAB_ACCEL is auto, kvm or tcg" ;;
    esac
    ACCEL=tcg
    if [ ! -w /dev/kvm ]; then
        return
    fi
    key="$(cat /proc/sys/kernel/random/boot_id) $(cat "$dir/release")"
    if grep -qxF "$key tcg" "$cache" 2>/dev/null; then
        return
    elif grep -qxF "$key kvm" "$cache" 2>/dev/null; then
        ACCEL=kvm
        return
    fi
    say "trying KVM (once, 20 s at most)"
    child timeout -k 1 20 qemu-system-x86_64 -M q35 -cpu host -accel kvm \
        -m 256 -display none -nodefaults -no-reboot \
        -serial "file:$RUN/probe" -kernel "$dir/vmlinuz" \
        -initrd "$dir/initramfs" -append "console=ttyS0 panic=-1 lab.probe" \
        >"$RUN/probe.log" 2>&1 || true
    if grep -aq GUEST-PROBE-OK "$RUN/probe" 2>/dev/null; then
        ACCEL=kvm
    else
        say "KVM does not boot here: TCG, which is slow"
    fi
    echo "$key $ACCEL" >>"$cache"
}

# qemu_args N: fills ARGS
qemu_args() {
    local n=$1 dir=$KERNEL_DIR virtio='' cmdline tag path i
    case $ACCEL-$CLOCK in
    kvm-*) ARGS=(-accel kvm -cpu host) ;;
    *-instructions)
        # One thread. Idle time takes none. A "rep movsb" would count as many
        # instructions as bytes: the guest is told that it is slow.
        ARGS=(-accel "tcg,thread=single" -icount "shift=0,sleep=off"
            -cpu "max,-erms,-fsrm")
        ;;
    *) ARGS=(-accel "tcg,thread=multi" -cpu max) ;;
    esac
    ARGS+=(-name "lab-guest$n" -M "q35,kernel-irqchip=split"
        -m "$MEMORY" -smp "$CPUS" -display none -nodefaults -no-reboot
        -serial "file:$RUN/share/g$n/console"
        -kernel "$dir/vmlinuz" -initrd "$dir/initramfs")
    cmdline="console=ttyS0 panic=-1 loglevel=7 printk.devkmsg=on net.ifnames=0"
    cmdline+=" watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=300"
    cmdline+=" lab.guest=$n"
    if [ "$IOMMU" != off ]; then
        # Comes before what is behind it
        ARGS+=(-device "intel-iommu,intremap=on,device-iotlb=on")
        virtio=,iommu_platform=on,disable-legacy=on
        cmdline+=" intel_iommu=on"
        if [ "$IOMMU" = passthrough ]; then
            cmdline+=" iommu=pt"
        fi
    fi
    ARGS+=(-append "$cmdline $APPEND"
        -drive "file=$ROOT_DIR/root.img,format=raw,if=none,id=root,readonly=on"
        -device "virtio-blk-pci,drive=root$virtio")
    share lab "$RUN/share" off
    share modules "$dir/modules/$(cat "$dir/release")" on
    while read -r tag path; do
        share "$tag" "$path" on
    done <"$RUN/share/trees"
    # Guest 1 is the hub: it passes on what the others say to each other
    if [ "$GUESTS" -le 2 ]; then
        link net0 "$n" $((3 - n))
    elif [ "$n" -eq 1 ]; then
        for ((i = 2; i <= GUESTS; ++i)); do
            link "link$i" "1-$i" "$i"
            ARGS+=(-netdev "hubport,hubid=0,id=port$i,netdev=link$i")
        done
        ARGS+=(-netdev "hubport,hubid=0,id=net0")
    else
        link net0 "$n" "1-$n"
    fi
    ARGS+=(-device "virtio-net-pci,netdev=net0,mac=52:54:00:4e:50:0$n$virtio"
        -device "virtio-serial-pci$virtio"
        -chardev "socket,path=$RUN/shell$n,server=on,wait=off,id=shell"
        -device "virtconsole,chardev=shell")
    case " $DEVICES " in
    *" edu "*) ARGS+=(-device "edu,dma_mask=0xffffffffffffffff") ;;
    esac
}

# share TAG PATH READONLY
share() {
    ARGS+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap,readonly=$3"
        -device "virtio-9p-pci,fsdev=$1,mount_tag=$1$virtio")
}

# link ID OWN PEER: a wire end over unix sockets, which may come up in any order
link() {
    ARGS+=(-netdev "dgram,id=$1,local.type=unix,local.path=$RUN/net$2,remote.type=unix,remote.path=$RUN/net$3")
}

# guests_start: boots GUESTS guests as MEMORY, CPUS, ... say. They die with us,
# except with LEASH=no.
guests_start() {
    local n share=$RUN/share
    local -a leash=(setpriv --pdeathsig KILL)
    if [ "${LEASH-}" = no ]; then
        leash=(setsid)
    fi
    {
        printf 'LAB_GUESTS=%q\nLAB_DEVICES=%q\nLAB_ZRAM=%q\n' "$GUESTS" \
            "$DEVICES" "$ZRAM"
    } >"$share/config"
    LAB_PIDS=()
    for ((n = 1; n <= GUESTS; ++n)); do
        rm -rf "$share/g$n" "$RUN"/net* "$RUN/shell$n"
        mkdir -p "$share/g$n"
    done
    for ((n = 1; n <= GUESTS; ++n)); do
        qemu_args "$n"
        # An open lock or pipe of ours would outlive us in a guest that is kept
        "${leash[@]}" nice -n "${NPRDMA_LAB_NICE:-0}" qemu-system-x86_64 \
            "${ARGS[@]}" </dev/null >"$share/g$n/qemu" 2>&1 &
        LAB_PIDS+=($!)
    done
    echo "${LAB_PIDS[*]}" >"$RUN/pids"
}

# Which guest is not running; nothing if all are
guests_dead() {
    local n=1 pid
    for pid in "${LAB_PIDS[@]}"; do
        if ! kill -0 "$pid" 2>/dev/null; then
            echo "$n"
            return
        fi
        n=$((n + 1))
    done
}

# Waits until all guests are up; the reason in BOOT_ERROR if one is not
guests_wait() {
    local start=$SECONDS n up
    while :; do
        up=0
        for ((n = 1; n <= GUESTS; ++n)); do
            if [ -e "$RUN/share/g$n/up" ]; then
                up=$((up + 1))
            elif [ -e "$RUN/share/g$n/failed" ]; then
                BOOT_ERROR="guest $n: $(cat "$RUN/share/g$n/failed")"
                return 1
            fi
        done
        if [ "$up" -eq "$GUESTS" ]; then
            return 0
        fi
        n=$(guests_dead)
        if [ -n "$n" ]; then
            BOOT_ERROR="guest $n died before it was up"
            if [ -s "$RUN/share/g$n/qemu" ]; then
                BOOT_ERROR+=": $(tail -n 1 "$RUN/share/g$n/qemu")"
            fi
            return 1
        fi
        if [ $((SECONDS - start)) -ge "$LAB_BOOT_LIMIT" ]; then
            BOOT_ERROR="not all guests were up after $LAB_BOOT_LIMIT s"
            return 1
        fi
        sleep 0.1
    done
}

# guests_boot: one boot in some 175 dies before process 1 says anything, so
# one more try
guests_boot() {
    local start=$SECONDS attempt
    for attempt in 1 2; do
        say "booting $GUESTS guest(s): $KERNEL under $ACCEL, $MEMORY MB," \
            "IOMMU $IOMMU, devices: ${DEVICES:-none}"
        guests_start
        if guests_wait; then
            BOOTS=$((BOOTS + 1))
            say "up after $((SECONDS - start)) s"
            return 0
        fi
        guests_kill
        logs_keep "boot$attempt"
        say "$BOOT_ERROR; consoles: $OUT/boot$attempt"
    done
    return 1
}

# guests_stop: lets guests write their kernel log, then ends them
guests_stop() {
    local n tries
    for ((n = 1; n <= ${#LAB_PIDS[@]}; ++n)); do
        touch "$RUN/share/g$n/stop"
    done
    for ((tries = 0; tries < 100; ++tries)); do
        for ((n = 1; n <= ${#LAB_PIDS[@]}; ++n)); do
            if kill -0 "${LAB_PIDS[n - 1]}" 2>/dev/null; then
                sleep 0.1
                continue 2
            fi
        done
        break
    done
    guests_kill
}

guests_kill() {
    local pid
    for pid in "${LAB_PIDS[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    for pid in "${LAB_PIDS[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    LAB_PIDS=()
}

# logs_keep NAME: what guests left, into the folder of results
logs_keep() {
    local n file
    mkdir -p "$OUT/$1"
    for ((n = 1; n <= GUESTS; ++n)); do
        for file in console dmesg qemu; do
            if [ -s "$RUN/share/g$n/$file" ]; then
                cp "$RUN/share/g$n/$file" "$OUT/$1/guest$n.$file"
            fi
        done
    done
}
