# SPDX-License-Identifier: BSD-3-Clause
"""Lines of "NAME TRANSPORT VALUE" as a table: medians, spreads, and the ratio
of nprdma to rc_verbs. The self-ratio is that of rc_verbs' second half of runs
to its first: what ratios differ by for no reason."""
import statistics
import sys

figures = {}
for line in open(sys.argv[1]):
    name, transport, value = line.rsplit(None, 2)
    runs = figures.setdefault(name, {"rc_verbs": [], "nprdma": []})
    runs[transport].append(float(value))


def text(values):
    middle = statistics.median(values)
    return "%10.2f %4.0f%%" % (middle, 100 * (max(values) - min(values)) / middle)


print("%-22s %4s %16s %16s %6s %6s" % ("median and spread", "runs", "rc_verbs",
                                       "nprdma", "ratio", "self"))
for name, runs in figures.items():
    rc, own = runs["rc_verbs"], runs["nprdma"]
    if not rc or not own:
        sys.exit("%s: %d runs of rc_verbs, %d of nprdma" % (name, len(rc),
                                                            len(own)))
    half = len(rc) // 2
    again = statistics.median(rc[half:]) / statistics.median(rc[:half] or rc)
    print("%-22s %4d %16s %16s %6.2f %6.2f" % (
        name, len(own), text(rc), text(own),
        statistics.median(own) / statistics.median(rc), again))
