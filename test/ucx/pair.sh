# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# A server and a client of UCX's own programs, which meet at a TCP port.

pair_port=$((21000 + $$ % 10000))

# Somebody listens at the port
pair_listens() {
    local hex
    hex=$(printf ':%04X ' "$pair_port")
    grep -qE "^ *[0-9]+: [0-9A-F]+$hex.* 0A " /proc/net/tcp /proc/net/tcp6
}

# pair PORT_OPTION CLIENT_WORDS COMMAND...: COMMAND with a port of its own, and
# again with CLIENT_WORDS. Output of the client is in TAP_OUT, and of the server
# in PAIR_OUT; RC is the client's exit code. The server ends by itself, or with
# pair_stop.
pair() {
    local option=$1 words i
    read -ra words <<<"$2"
    shift 2
    PAIR_OUT=$TAP_DIR/server
    pair_port=$((pair_port + 1))
    while pair_listens; do # somebody else
        pair_port=$((pair_port + 1))
    done
    timeout -k 5 60 "${RUN_PREFIX[@]}" "$@" "$option" "$pair_port" \
        >"$PAIR_OUT" 2>&1 </dev/null &
    PAIR_PID=$!
    for ((i = 0; i < 300; ++i)); do
        if pair_listens || ! kill -0 "$PAIR_PID" 2>/dev/null; then
            break
        fi
        sleep 0.05
    done
    run_here 60 "$@" "$option" "$pair_port" "${words[@]}"
    # what is sent may be a long line of output
    cut -c -300 "$TAP_OUT" >"$TAP_DIR/client"
    mv "$TAP_DIR/client" "$TAP_OUT"
}

# pair_end: the server's exit code goes into PAIR_RC
# shellcheck disable=SC2034
pair_end() {
    PAIR_RC=0
    wait "$PAIR_PID" || PAIR_RC=$?
}

pair_stop() {
    kill "$PAIR_PID" 2>/dev/null || true
    wait "$PAIR_PID" 2>/dev/null || true
}
