# SPDX-License-Identifier: BSD-3-Clause
# The same jobs of fio on files of nprdma-filed and of an NFS server in user
# space, in turn: nfs-ganesha, asked by libnfs, with an engine that fio's own
# source has.
# Needs: cpus[2], prefix, share, out, nprdma_top, nprdma_die, and a server at
# $share/socket with $share/files.
# shellcheck shell=bash disable=SC2154

nfs_port=20490
nfs_pid=

# nfs_missing: what is not installed, with a space before each
nfs_missing() {
    command -v fio >/dev/null || echo -n " fio"
    command -v ganesha.nfsd >/dev/null || echo -n " nfs-ganesha-vfs"
    [ -e /usr/include/nfsc/libnfs.h ] || echo -n " libnfs-dev"
    [ "$EUID" -eq 0 ] || echo -n " (and root)"
}

nfs_stop() {
    [ -z "$nfs_pid" ] || kill "$nfs_pid" 2>/dev/null || true
    [ -z "$nfs_pid" ] || wait "$nfs_pid" 2>/dev/null || true
    nfs_pid=
}

nfs_start() {
    local i
    mkdir -p "$share/nfs" "$share/ganesha"
    cat >"$share/ganesha/conf" <<END
NFS_CORE_PARAM {
    Protocols = 4;
    NFS_Port = $nfs_port;
    Bind_addr = 127.0.0.1;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = false;
    allow_set_io_flusher_fail = true;
}
NFSv4 {
    Graceless = true;
    RecoveryBackend = fs;
    RecoveryRoot = $share/ganesha;
    Only_Numeric_Owners = true;
}
EXPORT {
    Export_Id = 1;
    Path = $share/nfs;
    Pseudo = /nfs;
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    Transports = TCP;
    Protocols = 4;
    FSAL { Name = VFS; }
}
END
    taskset -c "${cpus[0]}" ganesha.nfsd -F -f "$share/ganesha/conf" \
        -L "$out/nfs-server.txt" -N EVENT -p "$share/ganesha/pid" \
        >/dev/null 2>&1 &
    nfs_pid=$!
    for ((i = 0; i < 300; ++i)); do
        ! (: <>"/dev/tcp/127.0.0.1/$nfs_port") 2>/dev/null || return 0
        kill -0 "$nfs_pid" 2>/dev/null || break
        sleep 0.1
    done
    nprdma_die "nfs-ganesha does not start: see $out/nfs-server.txt"
}

# nfs_job ENGINE DEPTH RW: operations a second
nfs_job() {
    local where=("--ioengine=external:$nfs_build/nprdma.so"
        "--socket=$share/socket")

    if [ "$1" = nfs ]; then
        where=("--ioengine=external:$nfs_build/nfs.so"
            "--nfs_url=nfs://127.0.0.1/nfs?version=4&nfsport=$nfs_port")
    fi
    taskset -c "${cpus[1]}" timeout -k 5 60 "$prefix/bin/nprdma-run" fio \
        --name=job --filename=/job --size=64m --bs=1k --iodepth="$2" \
        --rw="$3" --runtime="$nfs_seconds" --time_based \
        --output-format=terse "${where[@]}" 2>"$out/fio.txt" |
        awk -F ';' -v rw="$3" '$1 == 3 && $5 == 0 {
            print (rw == "randread") ? $8 : $49 }'
}

# nfs_median COLUMN FILE
nfs_median() {
    cut -f "$1" "$2" | sort -g | sed -n "$(((nfs_rounds + 1) / 2))p"
}

# nfs_measure ROUNDS SECONDS: lines "DEPTH RW NPRDMA NFS AGAIN", operations a
# second; AGAIN is nprdma's once more
nfs_measure() {
    local depth rw round engine
    nfs_rounds=$1 nfs_seconds=$2 nfs_build=$nprdma_top/build/fio
    "$nprdma_top/contrib/fio.sh" --prefix "$prefix" --build "$nfs_build" \
        --only-build >/dev/null || return 1
    "${CC:-cc}" -std=gnu99 -O2 -shared -fPIC -D_GNU_SOURCE \
        -include "$nfs_build/source/config-host.h" -I "$nfs_build/source" \
        -I "$nfs_build/source/engines" -o "$nfs_build/nfs.so" \
        "$nfs_build/source/engines/nfs.c" -lnfs || return 1
    nfs_start
    head -c 64M /dev/zero >"$share/nfs/job"
    for depth in 1 16; do
        for rw in randwrite randread; do
            : >"$out/nfs.rounds"
            for ((round = 0; round < nfs_rounds; ++round)); do
                for engine in nprdma nfs nprdma; do
                    nfs_job "$engine" "$depth" "$rw"
                done | paste -s >>"$out/nfs.rounds"
            done
            [ "$(wc -w <"$out/nfs.rounds")" -eq $((3 * nfs_rounds)) ] ||
                nprdma_die "fio failed: see $out/fio.txt"
            echo "$depth $rw $(nfs_median 1 "$out/nfs.rounds")" \
                "$(nfs_median 2 "$out/nfs.rounds")" \
                "$(nfs_median 3 "$out/nfs.rounds")"
        done
    done
    nfs_stop
}
