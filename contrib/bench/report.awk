# SPDX-License-Identifier: BSD-3-Clause
# From samples (ROUND SIDE NAME SIZE VALUE, separated by tabs) to the table:
# medians, ratios to the better of the others, what was wanted. With tsv=1 for
# programs, with spreads; with noisy=1 only the names and sizes of rows that
# noise has spoilt. With against=DIR stock is another nprdma, and a row is
# slower if the middle halves of the samples do not overlap.

# Sets low and high, too: the quartiles
function median_of(key,    n, i, j, x, v) {
    n = count[key]
    low = high = ""
    if (!n) return ""
    for (i = 1; i <= n; ++i) {
        x = sample[key, i]
        for (j = i - 1; j >= 1 && v[j] > x; --j) v[j + 1] = v[j]
        v[j + 1] = x
    }
    low = v[int((n + 3) / 4)]
    high = v[n + 1 - int((n + 3) / 4)]
    return (v[int((n + 1) / 2)] + v[int((n + 2) / 2)]) / 2
}

# Of a time the ratio wanted is a limit from above, of a rate from below
function is_time(name) {
    return name ~ /_lat(ency)?$|^reg_|^osu_all/
}

function unit_of(name) {
    if (name ~ /_ns$/) return "ns"
    if (name ~ /_kb$/) return "kB"
    if (is_time(name)) return "us"
    return name == "tag_rate" ? "1/s" : "MB/s"
}

function wanted_of(name, size) {
    if (name == "tag_lat") return 0.85
    if (name == "ucp_am_lat") return 0.9
    if (name == "uct_am_lat") return 1.0
    if (name == "ucp_put_lat") return 1.05
    if (name == "osu_latency") return size == 8 ? 0.8 : 0.95
    if (name == "osu_bw" && size >= 16384 && size <= 131072) return 2
    if (name == "osu_bw" && size >= 1048576) return 1.4
    if (name == "dirty_stream" && size >= 16384 && size <= 131072) return 1.2
    if (name ~ /^(idle|core)_/) return 0.97
    if (name == "tag_rate") return 1.5
    if (name == "tag_bw" && size >= 4194304) return 1.5
    if (name == "tag_bw" && size >= 1048576) return 1.3
    if (name == "dirty_single" && size >= 4194304) return 1.4
    if (name ~ /^reg_.*_us$/) return 10
    if (name ~ /^reg_.*_kb$/) return 0
    if (name == "reg_pair_ns") return 30
    return 1.0
}

function size_text(size) {
    if (size >= 1073741824 && size % 1073741824 == 0)
        return size / 1073741824 " GiB"
    if (size >= 1048576 && size % 1048576 == 0) return size / 1048576 " MiB"
    if (size >= 1024 && size % 1024 == 0) return size / 1024 " KiB"
    return size " B"
}

function number(x) {
    if (x == "") return "-"
    return x >= 1000 || x == int(x) ? sprintf("%.0f", x) : \
           sprintf(x >= 10 ? "%.1f" : "%.3f", x)
}

function ratio(x) { return x == "" ? "-" : sprintf("%.2f", x) }

# Is all of the middle half of nprdma's samples above (below, for rates) that of
# both others?
function is_slower(name, low, high, low1, high1, low2, high2) {
    return is_time(name) ? low > high1 && low > high2 : \
                           high < low1 && high < low2
}

# Of two medians, of which one or both may be missing
function better_of(name, a, b) {
    if (a == "" || b == "") return a == "" ? b : a
    return is_time(name) ? (a < b ? a : b) : (a > b ? a : b)
}

# Does noise alone make a difference of more than 10 %?
function is_noisy(self) { return self > 0 && (self < 0.9 || self > 1.1) }

function print_row(name, size,    again, again_low, again_high, stock,
                   stock_low, stock_high, ob1, mpich, best, nprdma, alone,
                   upper, by, self, wanted, value, good, limit, verdict) {
    ob1 = median_of(name SUBSEP size SUBSEP "ob1")
    mpich = median_of(name SUBSEP size SUBSEP "mpich")
    again = median_of(name SUBSEP size SUBSEP "again")
    again_low = low
    again_high = high
    stock = median_of(name SUBSEP size SUBSEP "stock")
    stock_low = low
    stock_high = high
    nprdma = median_of(name SUBSEP size SUBSEP "nprdma")
    alone = stock == ""
    best = better_of(name, better_of(name, stock, ob1), mpich)
    if (!alone) {
        by = best > 0 ? nprdma / best : 0
        self = again > 0 ? stock / again : 0
    }
    if (noisy) {
        if (is_noisy(self)) print name, size
        return
    }

    # What is compared is what is printed
    wanted = wanted_of(name, size)
    upper = alone || is_time(name)
    value = alone ? nprdma + 0 : ratio(by) + 0
    good = upper ? value <= wanted : value >= wanted
    limit = (upper ? "<= " : ">= ") (alone ? wanted : ratio(wanted))
    if (against != "") {
        limit = "-"
        good = !is_slower(name, low, high, stock_low, stock_high, again_low,
                          again_high)
    }
    verdict = good ? "ok" : against == "" ? "MISSED" : "SLOWER"
    if (is_noisy(self)) {
        ++nothing
    } else {
        ++rows
        bad += !good
    }

    # No size with less than half of what the size below it has
    if (name == "osu_bw" && against == "" && nprdma < before / 2) {
        cliffs = cliffs sprintf("%s falls from %s to %s MB/s at %s: MISSED\n",
                                name, number(before), number(nprdma),
                                size_text(size))
        ++bad
        ++rows
    }
    before = name == "osu_bw" ? nprdma : 0

    if (tsv) {
        print name "\t" size "\t" unit_of(name) "\t" stock "\t" stock_low \
              "\t" stock_high "\t" ob1 "\t" mpich "\t" nprdma "\t" low \
              "\t" high "\t" by "\t" self "\t" limit "\t" verdict
    } else {
        printf "%-13s %8s %4s %9s %9s %9s %9s %6s %5s%1s %-8s %s\n", name,
               size_text(size), unit_of(name), number(stock), number(ob1),
               number(mpich), number(nprdma), ratio(by), ratio(self),
               is_noisy(self) ? "*" : "", limit, verdict
    }
}

BEGIN {
    other = against == "" ? "stock" : "other"
    if (noisy) {
        # the rows alone
    } else if (tsv) {
        print "name\tsize\tunit\tstock\tstock_low\tstock_high\tob1" \
              "\tmpich\tnprdma\tnprdma_low\tnprdma_high\tratio\tself" \
              "\twanted\tverdict"
    } else {
        printf "%-13s %8s %4s %9s %9s %9s %9s %6s %5s  %-8s %s\n", "name",
               "size", "unit", other, "ob1", "mpich", "nprdma", "/best", "self",
               "wanted", ""
    }
    FS = "\t"
}

{
    row = $3 SUBSEP $4
    if (!($3 in sizes)) names[++num_names] = $3
    if (!(row in seen)) {
        seen[row] = 1
        size_of[$3, ++sizes[$3]] = $4
    }
    key = row SUBSEP $2
    sample[key, ++count[key]] = $5
}

# By size: rows that were measured again come last
function sort_sizes(name,    i, j, x) {
    for (i = 2; i <= sizes[name]; ++i) {
        x = size_of[name, i]
        for (j = i - 1; j >= 1 && size_of[name, j] + 0 > x + 0; --j)
            size_of[name, j + 1] = size_of[name, j]
        size_of[name, j + 1] = x
    }
}

END {
    for (i = 1; i <= num_names; ++i) {
        sort_sizes(names[i])
        for (j = 1; j <= sizes[names[i]]; ++j) {
            print_row(names[i], size_of[names[i], j])
        }
    }
    if (!tsv && !noisy) {
        printf "%s", cliffs
        printf against == "" ? "%d reached, %d missed" : \
                               "%d not slower, %d slower", rows - bad, bad
        printf nothing ? ", %d tell nothing\n" : "\n", nothing
    }
}
