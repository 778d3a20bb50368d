# SPDX-License-Identifier: BSD-3-Clause
# From samples of `paging` (ROUND CASE MEMORY WHAT SIZE SIDE VALUE, separated by
# tabs) to the table: medians, what they are compared with, what was wanted.
# With plot=PREFIX also PREFIX.latency and .bandwidth for osu-bench/plot.sh.

# The median of a case, "" if there is none
function of(name, memory, what, size, side,    key, n, i, j, x, v) {
    key = name SUBSEP memory SUBSEP what SUBSEP size SUBSEP side
    n = count[key]
    if (!n) return ""
    for (i = 1; i <= n; ++i) {
        x = sample[key, i]
        for (j = i - 1; j >= 1 && v[j] > x; --j) v[j + 1] = v[j]
        v[j + 1] = x
    }
    return (v[int((n + 1) / 2)] + v[int((n + 2) / 2)]) / 2
}

function size_text(size) {
    if (size >= 1048576) return int(size / 1048576) " MiB"
    if (size >= 1024) return int(size / 1024) " KiB"
    return size " B"
}

function number(x) {
    if (x == "" || x == "-") return "-"
    return x >= 1000 ? sprintf("%.0f", x) : x >= 10 ? sprintf("%.1f", x) : \
           sprintf("%.3f", x)
}

# line(CASE, MEMORY, WHAT, SIZE, COMPARED, NPRDMA, SELF, LIMIT, LESS, NOTE):
# LIMIT is of NPRDMA itself, "" for no goal
function line(name, memory, what, size, base, value, self, limit, less, note,
              verdict) {
    if (value == "") return
    verdict = "-"
    if (limit != "") {
        verdict = (less ? value <= limit : value >= limit) ? "ok" : "MISSED"
        missed += verdict == "MISSED"
        ++goals
    }
    printf "%-13s %-6s %-6s %7s %9s %9s %6s %5s %s%9s %-6s %s\n", name, memory,
           what, size == "-" ? "-" : size_text(size), number(base),
           number(value), (base > 0) ? sprintf("%.2f", value / base) : "-",
           self == "" ? "-" : sprintf("%.2f", self),
           limit == "" ? "  " : less ? "<=" : ">=", number(limit), verdict,
           note
}

function max(a, b) { return a > b ? a : b }

function latency(memory, what, size,    base, again, limit, value) {
    base = of("latency", memory, what, size, "pinned")
    again = of("latency", memory, what, size, "again")
    value = of("latency", memory, what, size, "nprdma")
    if (base == "") return
    base = (base + again) / 2
    pinned[memory, what, size] = base
    limit = ""
    if (what == "read" && size == 8) limit = 1.25 * base
    # 2 ns for each unit of 256 bytes that is checked
    if (what == "read" && size >= 4096)
        limit = max(1.10 * base, base + 0.002 * size / 256)
    if (what == "write" && size == 8) limit = 1.30 * base
    if (what == "write" && size == 4096) limit = 1.10 * base
    if (what == "write" && size >= 65536) limit = 1.02 * base
    line("no fault us", memory, what, size, base, value,
         of("latency", memory, what, size, "pinned") / again, limit, 1, "")
}

function bandwidth(memory, what, size,    base, again, wanted) {
    base = of("bandwidth", memory, what, size, "pinned")
    if (base == "") return
    again = of("bandwidth", memory, what, size, "again")
    wanted = memory == "kernel" ? 0.90 : size <= 1048576 ? 0.88 : 0.95
    line("no fault MB/s", memory, what, size, (base + again) / 2,
         of("bandwidth", memory, what, size, "nprdma"), base / again,
         wanted * (base + again) / 2, 0, "")
}

function os_fault(memory, what, size) {
    return of("os_touch", memory, what, size, "os")
}

function minor(memory, what, size,    base, limit, note, control) {
    base = pinned[memory, what, size]
    control = of("control", "kernel", "fadd", 8, "progress")
    limit = note = ""
    if (size <= 1024) {
        limit = base + control + 1.5 * os_fault(memory, what, 4096)
        note = "paper " (what == "read" ? 3.5 : 5.7) " us"
    } else if (size == 8388608) {
        limit = 1.7 * (base + os_fault(memory, what, size))
        note = "paper 1.67 x pinned"
    }
    line("minor us", memory, what, size, base,
         of("minor", memory, what, size, "progress"), "", limit, 1,
         faulted(memory, what, size, "progress") note)
}

# Says so if some were none
function faulted(memory, what, size, side,    share) {
    share = of("faults", memory, what, size, side)
    return share != "" && share < 0.99 ? \
           sprintf("only %.0f %% faulted; ", share * 100) : ""
}

function computing(memory, what, size) {
    line("  computing", memory, what, size, pinned[memory, what, size],
         of("minor", memory, what, size, "compute"), "", "", 1,
         faulted(memory, what, size, "compute"))
}

BEGIN { FS = "\t" }

{
    key = $2 SUBSEP $3 SUBSEP $4 SUBSEP $5 SUBSEP $6
    sample[key, ++count[key]] = $7
    if (($2 == "latency" || $2 == "bandwidth" || $2 == "minor") &&
        !(($2, $5) in seen)) {
        seen[$2, $5]
        sizes[$2, ++num[$2]] = $5
    }
}

END {
    split("kernel direct", memories, " ")
    split("read write fadd", whats, " ")

    printf "%-13s %-6s %-6s %7s %9s %9s %6s %5s %11s %-6s\n", "case", "memory",
           "what", "size", "compared", "nprdma", "ratio", "self", "wanted", ""
    for (m = 1; m <= 2; ++m) {
        for (w = 1; w <= 2; ++w) {
            for (i = 1; i <= num["latency"]; ++i)
                latency(memories[m], whats[w], sizes["latency", i])
            for (i = 1; i <= num["bandwidth"]; ++i)
                bandwidth(memories[m], whats[w], sizes["bandwidth", i])
            for (i = 1; i <= num["minor"]; ++i)
                minor(memories[m], whats[w], sizes["minor", i])
            for (i = 1; i <= num["minor"]; ++i)
                computing(memories[m], whats[w], sizes["minor", i])
            base = of("rate", memories[m], whats[w], 8, "os")
            line("faults/s", memories[m], whats[w], 8, base,
                 of("rate", memories[m], whats[w], 8, "nprdma"), "",
                 base == "" ? "" : base * 0.5, 0, "paper 1.5 M/s")
        }
        for (w = 1; w <= 3; ++w) {
            line("passive p50us", memories[m], whats[w], 8, "-",
                 of("passive", memories[m], whats[w], 8, "p50"), "", "", 1, "")
            line("passive p99us", memories[m], whats[w], 8, "-",
                 of("passive", memories[m], whats[w], 8, "p99"), "", 1000, 1,
                 "")
        }
    }

    base = of("major", "kernel", "read", 8, "os")
    if (base == "") {
        print "major faults: left out, there is no free swap (zram wants root)"
    } else {
        line("major us", "kernel", "read", 8, base,
             of("major", "kernel", "read", 8, "nprdma"), "",
             1.3 * base + of("control", "kernel", "fadd", 8, "progress"), 1,
             faulted("kernel", "major", 8, "progress") \
             "zram; paper, SSD: read 60 us, write 57 us")
        line("swap-out us", "kernel", "page", 4096, "-",
             of("pageout", "kernel", "write", 4096, "os"), "", "", 1,
             "with telling nprdma; paper 78 us; out " \
             of("swapped", "kernel", "read", 8, "os") * 100 " %")
    }

    for (key in count) {
        split(key, part, SUBSEP)
        if (part[1] == "sparse") used = part[4]
    }
    if (used > 0) {
        tables = of("sparse", "kernel", "write", used, "tables")
        # All of it in kB; tables may be resident in the target, too
        line("sparse kB", "kernel", "write", used, used / 1024,
             of("sparse", "kernel", "write", used, "rss"), "",
             1.1 * used / 1024 + tables, 1,
             sprintf("of 64 GiB; tables %d kB, page tables %d kB", tables,
                     of("sparse", "kernel", "write", used, "pte")))
    }

    printf "\nwaking a thread beside a computing rank %s us; an atomic by " \
           "control message %s us,\nwith the target computing %s us\n",
           number(of("wake", "-", "thread", 0, "os")),
           number(of("control", "kernel", "fadd", 8, "progress")),
           number(of("control", "kernel", "fadd", 8, "compute"))
    for (m = 1; m <= 2; ++m)
        printf "the OS on %s memory: touching a page %s us (reading), %s us " \
               "(writing), MADV_POPULATE_WRITE %s us;\n8 MiB %s, %s, %s us\n",
               memories[m], number(os_fault(memories[m], "read", 4096)),
               number(os_fault(memories[m], "write", 4096)),
               number(of("os_populate", memories[m], "write", 4096, "os")),
               number(os_fault(memories[m], "read", 8388608)),
               number(os_fault(memories[m], "write", 8388608)),
               number(of("os_populate", memories[m], "write", 8388608, "os"))
    printf "%d of %d goals reached\n", goals - missed, goals

    if (plot == "") exit
    print "# size pinned no-fault minor-fault" >(plot ".latency")
    for (i = 1; i <= num["latency"]; ++i) {
        s = sizes["latency", i]
        print s, pinned["kernel", "read", s],
              of("latency", "kernel", "read", s, "nprdma"),
              of("minor", "kernel", "read", s, "progress") >(plot ".latency")
    }
    print "# size pinned no-fault" >(plot ".bandwidth")
    for (i = 1; i <= num["bandwidth"]; ++i) {
        s = sizes["bandwidth", i]
        print s, of("bandwidth", "kernel", "read", s, "pinned"),
              of("bandwidth", "kernel", "read", s, "nprdma") \
              >(plot ".bandwidth")
    }
}
