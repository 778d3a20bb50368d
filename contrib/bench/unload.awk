# SPDX-License-Identifier: BSD-3-Clause
# From lines of bench-unload.sh (TARGET PAGES SIZE POLICY US SHARE) to a table.
# Runs of a row come in the order in which they were made: its noise is that of
# the first half against the second, of "off".

function median(list,    values, n, i, j, v) {
    n = split(list, values, " ")
    for (i = 2; i <= n; ++i) {
        v = values[i] + 0
        for (j = i - 1; j > 0 && values[j] + 0 > v; --j)
            values[j + 1] = values[j]
        values[j + 1] = v
    }
    return n % 2 ? values[(n + 1) / 2] : \
           (values[n / 2] + values[n / 2 + 1]) / 2
}

function half(list, which,    values, n, i, part) {
    n = split(list, values, " ")
    for (i = 1; i <= n; ++i)
        if ((i * 2 > n) == which) part = part " " values[i]
    return median(part)
}

BEGIN { FS = "\t" }

{
    row = $1 FS $2 FS $3
    if (!(row in seen)) {
        seen[row] = 1
        rows[++num_rows] = row
    }
    times[row, $4] = times[row, $4] " " $5
    shares[row, $4] = shares[row, $4] " " $6
}

END {
    has_all = (rows[1], "hint") in times # over soft0
    printf "%-10s  %6s  %5s  %7s  %7s  %7s  %8s  %11s  %s%s\n", "target", \
        "pages", "bytes", "off", "always", "auto", "unloaded", "auto/better", \
        "off/off", has_all ? "  hint  frequency" : ""
    for (i = 1; i <= num_rows; ++i) {
        row = rows[i]
        split(row, part, FS)
        off = median(times[row, "off"])
        always = median(times[row, "always"])
        auto = median(times[row, "auto"])
        printf "%-10s  %6d  %5d  %7.2f  %7.2f  %7.2f  %7.0f%%  ", \
            part[1], part[2], part[3], off, always, auto, \
            median(shares[row, "auto"])
        printf "%11.3f  %.3f", auto / (off < always ? off : always), \
            half(times[row, "off"], 0) / half(times[row, "off"], 1)
        if (has_all)
            printf "    %.2f  %.2f", median(times[row, "hint"]), \
                median(times[row, "frequency"])
        print ""
    }
}
