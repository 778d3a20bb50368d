# SPDX-License-Identifier: BSD-3-Clause
# From lines of `overlap` behind those of bench-overlap.sh (COST REG RATE
# SLOWDOWN NAME SIZE MEDIAN LEAST MOST SENDER RECEIVER TRANSFER) to the table,
# and to tables for osu-bench/plot.sh (PREFIX-COST.latency and .bandwidth).
# Exits 1 if a goal is missed.

function max(a, b) { return a > b ? a : b }

# Microseconds that registering takes: once, or in chunks
function reg_time(len, chunk) {
    return int((len + chunk - 1) / chunk) * reg + len * per_byte
}

# The chunk that mem/model.c takes
function best_chunk(len,    best, chunk) {
    best = len
    for (chunk = 65536; chunk < len; chunk *= 2)
        if (chunked(len, chunk) < chunked(len, best)) best = chunk
    return best
}

function chunked(len, chunk) {
    return max(reg_time(len, chunk) + chunk * link_byte, \
               reg_time(chunk, chunk) + len * link_byte)
}

function size_text(size) {
    if (size >= 1048576) return int(size / 1048576) " MiB"
    return int(size / 1024) " KiB"
}

function verdict(is_ok) {
    ++goals
    missed += !is_ok
    return is_ok ? "ok" : "MISSED"
}

{
    if (!($1 in is_cost)) { is_cost[$1] = 1; costs[++num_costs] = $1 }
    if (!($6 in is_size)) { is_size[$6] = 1; sizes[++num_sizes] = $6 }
    once[$1] = $2
    rate[$1] = $3
    of[$1, $5, $6] = $7 / $4
    if ($5 == "sequential") {
        of[$1, "sender", $6]   = $10
        of[$1, "receiver", $6] = $11
        of[$1, "transfer", $6] = $12
    }
}

function report(cost,    i, len, first, ideal, s, o, u, c, w, name) {
    reg       = once[cost]
    per_byte  = 1 / (rate[cost] * 1.048576)
    link_byte = 1 / 12500
    name      = plot "-" cost
    print "size sequential overlapped cached" >(name ".latency")
    print "size sequential overlapped cached" >(name ".bandwidth")
    printf "Registration %s us + %.3f ns/B (%s), link 12.5 GB/s, 1 us\n",
           reg, per_byte * 1000, cost
    printf "%8s %10s %10s %11s %10s %6s %10s %6s %6s %6s\n", "size",
           "sequential", "overlapped", "unannounced", "ideal", "", "speed-up",
           "", "hidden", ""
    for (i = 1; i <= num_sizes; ++i) {
        len   = sizes[i]
        s     = of[cost, "sequential", len]
        o     = of[cost, "overlapped", len]
        u     = of[cost, "unannounced", len]
        first = best_chunk(len)
        ideal = reg_time(first, first) + max(reg_time(len, len), \
                                             len * link_byte) + 2
        printf "%8s %10.1f %10.1f %11.1f %10.1f %6s %10.2f %6s %6.2f %6s\n",
               size_text(len), s, o, u, ideal, verdict(o <= ideal * 1.15),
               s / o, len < 1048576 ? "-" : verdict(s / o >= 1.5),
               (s - o) / reg_time(len, len), \
               verdict((s - o) / reg_time(len, len) >= 0.85)
        print len, s, o, of[cost, "cached", len] >(name ".latency")
        print len, len / s, len / o, len / of[cost, "cached", len] \
            >(name ".bandwidth")
    }
    print ""
    printf "%8s %10s %10s %10s\n", "size", "cached", "warm", "cached/warm"
    for (i = 1; i <= num_sizes; ++i) {
        c = of[cost, "cached", sizes[i]]
        w = of[cost, "warm", sizes[i]]
        printf "%8s %10.1f %10.1f %10.3f %s\n", size_text(sizes[i]), c, w,
               c / w, verdict(c / w >= 0.97)
    }
    print ""
}

# COST "none": no model, and pages that the OS has taken. Two processors cannot
# be faster than half of what both sides do, and the transfer, which they share.
function report_taken(cost,    i, len, first, ideal, s, o, a, b, t) {
    print "Pages that the OS has taken, not modelled"
    printf "%8s %8s %8s %8s %10s %10s %11s %10s %6s %6s %10s\n", "size",
           "sender", "receiver", "transfer", "sequential", "overlapped",
           "unannounced", "ideal", "", "hidden", "seed"
    first = max(of[cost, "sender", sizes[1]], of[cost, "receiver", sizes[1]])
    for (i = 1; i <= num_sizes; ++i) {
        len   = sizes[i]
        s     = of[cost, "sequential", len]
        o     = of[cost, "overlapped", len]
        a     = of[cost, "sender", len]
        b     = of[cost, "receiver", len]
        t     = of[cost, "transfer", len]
        ideal = max((i > 1 ? first : 0) + max(max(a, b), t), (a + b) / 2 + t)
        printf "%8s %8.1f %8.1f %8.1f %10.1f %10.1f %11.1f %10.1f %6s %6.2f %10.1f\n",
               size_text(len), a, b, t, s, o, of[cost, "unannounced", len],
               ideal, verdict(o <= ideal * 1.15), (s - o) / (a < b ? a : b), \
               22 + 0.77 * len / 4096
    }
    print ""
}

END {
    for (k = 1; k <= num_costs; ++k) {
        if (costs[k] == "none") report_taken(costs[k])
        else report(costs[k])
    }
    print "Microseconds. ideal: first chunk + the longest of both sides' " \
          "registration and the"
    print "transfer (goal: at most 1.15 of it); speed-up: of sequential (goal: " \
          "1.5 from 1 MiB up);"
    print "hidden: of one side's registration (goal: 0.85); cached/warm: a cache " \
          "that always hits"
    print "against pages that are mapped (goal: 0.97). Not modelled: sender, " \
          "receiver: what"
    print "bringing the pages in takes each by itself; ideal: also at least half of " \
          "both and the"
    print "transfer; hidden: of the smaller side's; seed: one side by its model."
    printf "%d of %d goals reached\n", goals - missed, goals
    exit missed > 0
}
