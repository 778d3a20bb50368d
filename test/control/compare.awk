# SPDX-License-Identifier: BSD-3-Clause
# Compares what two transports did: awk -f compare.awk ACCEPTED STOCK... OURS...
# ACCEPTED has the differences that have a reason, the others are what control
# wrote; names of files of the first transport begin with "stock". Several runs
# of the same combination add up. A difference is printed as
#   differs CASE FIELD STOCK OURS         or
#   accepted NUMBER-OF-LINE CASE FIELD STOCK OURS
# Differences are: a bad end of ours that stock never had, and a field in which
# the two never agreed.
BEGIN { FS = "[ \t]+"; SUBSEP = " " }

# CASE FIELD STOCK OURS: regular expressions of the whole word. The reason is in
# the comment above.
FILENAME == ARGV[1] {
    if (!/^#/ && NF == 4) {
        ++num_accepted
        line_of[num_accepted] = FNR
        for (i = 1; i <= 4; ++i) {
            accepted[num_accepted, i] = "^(" $i ")$"
        }
    } else if (!/^#/ && NF > 0) {
        print "differs", FILENAME ":" FNR, "malformed", "-", "-"
    }
    next
}

{
    who = (FILENAME ~ /(^|\/)stock[^\/]*$/) ? "stock" : "ours"
    cases[$1] = 1
    seen[who, $1] = 1
    for (i = 2; i <= NF; ++i) {
        at = index($i, "=")
        add(who, $1, substr($i, 1, at - 1), class(substr($i, at + 1)))
    }
}

# Statuses that tell a program the same: the peer is gone; the address is none
# that may be used. Where a process died does not matter.
function class(value,   words, n, i, out) {
    gsub(/timeout|reset|not_connected|unreachable/, "gone", value)
    gsub(/io_error|invalid_addr|rejected/, "refused", value)
    sub(/^signal6:.*/, "aborted", value)
    sub(/^signal.*/, "died", value)
    n = split(value, words, "[+]")
    for (i = 1; i <= n; ++i) {
        if (index("+" out "+", "+" words[i] "+") == 0) {
            out = out (out == "" ? "" : "+") words[i]
        }
    }
    return out
}

# An assertion of ours where stock did not die, UCP's own as a rule, is told
# from a signal that nobody meant: one may have a reason. Stock's come first.
function add(who, name, field, value,   key) {
    key = who SUBSEP name SUBSEP field
    if (value == "aborted" &&
        (who == "stock" || (("stock" SUBSEP name SUBSEP field, "died") in has))) {
        value = "died"
    }
    fields[field] = 1
    if (!((key, value) in has)) {
        has[key, value] = 1
        values[key] = values[key] (values[key] == "" ? "" : "|") value
    }
}

# What ours may not have if stock never has it
function bad(value,   out) {
    out = ""
    if (value ~ /pending/)           out = out " pending"
    if (value ~ /wrong/)             out = out " wrong"
    if (value ~ /late/)              out = out " late"
    if (value ~ /missed/)            out = out " missed"
    if (value ~ /stuck/)             out = out " stuck"
    if (value ~ /aborted|died|exit[1-9]/) out = out " died"
    return out
}

# In all runs: on a busy machine something may take too long once
function always(values_of_all, word,   list, n, i) {
    n = split(values_of_all, list, "[|]")
    for (i = 1; i <= n; ++i) {
        if (index(list[i], word) == 0) return 0
    }
    return 1
}

function differs(name, field,   stock, ours, list, n, i) {
    stock = values["stock" SUBSEP name SUBSEP field]
    ours  = values["ours" SUBSEP name SUBSEP field]
    n     = split(bad(ours), list, " ")
    for (i = 1; i <= n; ++i) {
        if (index(bad(stock), list[i]) == 0 &&
            (list[i] !~ /^(pending|missed)$/ || always(ours, list[i]))) {
            return 1
        }
    }
    # What is right needs no agreement, and that data is seen follows from
    # requests that ended well
    if (field ~ /data$/ || (field ~ /again$/ && ours == "ok")) return 0
    n = split(ours, list, "[|]")
    for (i = 1; i <= n; ++i) {
        if (("stock" SUBSEP name SUBSEP field, list[i]) in has) return 0
    }
    return 1
}

function report(name, field,   stock, ours, i) {
    stock = values["stock" SUBSEP name SUBSEP field]
    ours  = values["ours" SUBSEP name SUBSEP field]
    for (i = 1; i <= num_accepted; ++i) {
        if (name ~ accepted[i, 1] && field ~ accepted[i, 2] &&
            stock ~ accepted[i, 3] && ours ~ accepted[i, 4]) {
            print "accepted", line_of[i], name, field, stock, ours
            return
        }
    }
    print "differs", name, field, stock, ours
}

# Where stock's process died, what the two saw besides that follows from it
function has_died(who, name) {
    return bad(values[who SUBSEP name SUBSEP "init.end"] \
               values[who SUBSEP name SUBSEP "target.end"]) ~ /died/
}

END {
    for (name in cases) {
        if (!(("stock", name) in seen) || !(("ours", name) in seen)) {
            print "differs", name, "missing", "-", "-"
            continue
        }
        for (field in fields) {
            if (differs(name, field) &&
                (field ~ /end$/ || !has_died("stock", name))) {
                report(name, field)
            }
        }
    }
}
