#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What the documents say, against what there is: variables and their defaults,
# numbers, names of files, jobs, functions and options, and messages. Links are
# for test/tidy/tidy.t.
# Backticks within single quotes are Markdown's
# shellcheck disable=SC2016
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"
cd "$NPRDMA_SRC"

# Pipes end in none(), which counts; what finds nothing in the middle is no
# error
shopt -s lastpipe
set +o pipefail

documents=(README.md docs/*/*.md contrib/*/README.md docs/man/*.[1-9])
sources=(src include kmod test contrib osu-bench Makefile.am configure.ac)

# none NAME: standard input has what is wrong, a line for each
none() {
    sort -u > "$TAP_DIR/wrong"
    if [ -s "$TAP_DIR/wrong" ]; then
        tap_not_ok "$1" "$TAP_DIR/wrong"
    else
        tap_ok "$1"
    fi
}

# A document in one line, without marks of its form
plain() {
    sed -E 's/^\.(BR|BI|RB|RI|IR|B|I) //; s/^\.(TP|PP|IP.*|br|nf|fi)$//
            s/\\f.//g; s/\\-/-/g; s/" *([^"]*) *"/\1/g; s/^ *[-*] //' "$1" |
        tr -s ' \t\n' ' '
}

# Words that PATTERN finds in documents, with the document
words() {
    grep -oHE "$1" "${documents[@]}" | sed 's/\\-/-/g' | sort -u
}

# -- variables

run_here 30 ucx_info -cf
sed -n 's/^UCX_NPRDMA_/&/p' "$TAP_OUT" > "$TAP_DIR/settings"
cut -d= -f1 "$TAP_DIR/settings" | sort > "$TAP_DIR/names"
tap_check "ucx_info -cf shows variables" test -s "$TAP_DIR/names"

words 'UCX_NPRDMA_[A-Z_]*[A-Z]' |
    while IFS=: read -r document name; do
        grep -qx "$name" "$TAP_DIR/names" || echo "$document: $name"
    done | none "variables that documents name are there"

# Those without the prefix, where they are given a value; a script's own count
grep -oHE '`[A-Z][A-Z_]+=[^` ]*`' "${documents[@]}" |
    sed 's/`//g; s/=.*//' | sort -u |
    while IFS=: read -r document name; do
        case $name in
        UCX_* | OMPI_* | RDMAV_*) continue ;;
        esac
        grep -qx "UCX_NPRDMA_$name" "$TAP_DIR/names" ||
            grep -rqw "$name" test contrib Makefile.am configure.ac ||
            echo "$document: $name="
    done | none "variables that documents give a value are there"

# values DOCUMENT: sizes in small letters, times in us
values() {
    awk 'BEGIN { scale["s"] = 1e6; scale["ms"] = 1e3; scale["us"] = 1 }
         {
             value = tolower($2)
             if (match(value, /^[0-9.]+(s|ms|us)$/)) {
                 unit = value
                 gsub(/[0-9.]/, "", unit)
                 value = (value + 0) * scale[unit] "us"
             }
             print $1, value
         }' | sort
}

sed 's/=/ /' "$TAP_DIR/settings" | values > "$TAP_DIR/defaults"
sed -nE 's/^\| `(UCX_NPRDMA_[A-Z_]+)` \| (`([^`]*)`|\(none\)) \|.*/\1 \3/p' \
    docs/guide/user-guide.md | values | diff "$TAP_DIR/defaults" - |
    sed -n 's/^</ucx_info -cf:/p; s/^>/user-guide.md:/p' |
    none "the user guide has every variable and its default"

# The manual page has the same variables in the same groups, and names each
# value that the guide names
awk '/^### /                      { group = substr($0, 5) }
     /^## /                       { group = "" }
     /^\| `UCX_NPRDMA_[A-Z_]+` / { gsub(/`/, "", $2); print $2, group }' \
    docs/guide/user-guide.md | sort > "$TAP_DIR/groups"
awk '/^\.SS /                     { gsub(/^\.SS |"/, ""); group = $0 }
     /^\.BR UCX_NPRDMA_[A-Z_]+ "/ { print $2, group }' docs/man/nprdma.7 |
    sort | diff "$TAP_DIR/groups" - |
    sed -n 's/^</user-guide.md:/p; s/^>/nprdma.7:/p' |
    none "the manual page groups variables as the guide does"

awk '/^\.S[SH] /                  { name = "" }
     /^\.BR UCX_NPRDMA_[A-Z_]+ "/ { name = $2; next }
     name != ""                   { sub(/^\.(BR|BI|RB|RI|IR|B|I|TP|PP) ?/, "")
                                    gsub(/\\-/, "-"); print name, $0 }' \
    docs/man/nprdma.7 > "$TAP_DIR/man"
sed -nE 's/^\| `(UCX_NPRDMA_[A-Z_]+)` \| [^|]* \| (.*) \|$/\1 \2/p' \
    docs/guide/user-guide.md |
    while read -r name meaning; do
        grep -o '`[^`]*`' <<< "$meaning" | tr -d '`' |
            while read -r value; do
                sed -n "s/^$name //p" "$TAP_DIR/man" |
                    grep -qE "(^|[^a-z0-9-])${value/\*/.*}([^a-z0-9-]|\$)" ||
                    echo "nprdma.7: $name says nothing of '$value'"
            done
    done | none "the manual page names each value that the guide names"

# What nprdma-run sets
run 30 "$NPRDMA_PREFIX/bin/nprdma-run" -v true
sed -nE 's/^nprdma-run: ([A-Z][A-Za-z_]+)=.*/\1/p' "$TAP_OUT" |
    sort -u > "$TAP_DIR/set"
tap_check "nprdma-run -v says what it sets" test -s "$TAP_DIR/set"
while read -r name; do
    for document in docs/guide/user-guide.md docs/man/nprdma-run.1; do
        grep -qw "$name" "$document" || echo "$document: no $name"
    done
done < "$TAP_DIR/set" | none "what nprdma-run sets is documented"

# -- numbers

run 60 "$NPRDMA_BUILD/doc_numbers"
tap_expect_success "doc_numbers"
cp "$TAP_OUT" "$TAP_DIR/numbers"
while IFS=$'\t' read -r document phrase; do
    plain "$document" | grep -qF -e "$phrase" || echo "$document: no '$phrase'"
done < "$TAP_DIR/numbers" | none "numbers of the code ($(wc -l \
    < "$TAP_DIR/numbers")) are those of the documents"

abi=$(sed -nE 's/^#define NPRDMA_ABI_VERSION[[:blank:]]+([0-9]+).*/\1/p' \
    include/nprdma/nprdma_uapi.h)
for document in "${documents[@]}"; do
    plain "$document" | grep -oiE 'ABI[^.|]{0,20} version [0-9]+' |
        grep -vE " $abi\$" | sed "s|^|$document: |"
done | none "the module's ABI has version $abi"
{ grep -qF "\`NPRDMA_ABI_VERSION\`, now $abi" docs/design/kmod.md ||
    echo "NPRDMA_ABI_VERSION is $abi"; } | none "docs/design/kmod.md says so"

# Parameters of the module
sed -nE 's/^module_param(_named)?\(([a-z_]+),.*/\2/p' kmod/*.c | sort \
    > "$TAP_DIR/parameters"
tap_check "the module has parameters" test -s "$TAP_DIR/parameters"
sed -n '/^## Parameters/,/^## W/p' docs/guide/kmod.md |
    sed -nE 's/^\| `([a-z_]+)` \|.*/\1/p' | sort |
    diff "$TAP_DIR/parameters" - |
    sed -n 's/^</kmod:/p; s/^>/kmod.md:/p' |
    none "docs/guide/kmod.md has every parameter"

# What follows from each errno of a registration, in the code and in the
# document
sed -nE 's/^    \{[A-Z0-9]+, "([A-Za-z0-9]+)", NP_DMABUF_([A-Z]+),.*/\1 \2/p' \
    src/nprdma/dev/verbs/dmabuf.c | sort > "$TAP_DIR/refusals"
tap_check "refusals have consequences" test -s "$TAP_DIR/refusals"
awk -F ' [|] ' '
    /^\| errno \|/ { table = 1; next }
    !/^\|/         { table = 0 }
    table && /`/   {
        follows = $3
        if ($3 ~ /^try smaller/) follows = "SMALLER"
        if ($3 ~ /^this device never/) follows = "NEVER"
        if ($3 ~ /^later again/) follows = "LATER"
        if ($3 ~ /^this arena never/) follows = "OTHERS"
        gsub(/[|`, ]+/, " ", $1)
        count = split($1, names, " ")
        for (i = 1; i <= count; ++i) {
            print names[i], follows
        }
    }' docs/design/protocol.md | sort | diff "$TAP_DIR/refusals" - |
    sed -n 's/^</dmabuf.c:/p; s/^>/protocol.md:/p' |
    none "docs/design/protocol.md says what follows from each refusal"

# -- names

# Paths, from the top or from a room of the sources
words '`[a-z][A-Za-z0-9_.*-]*(/[A-Za-z0-9_.*-]+)*/?(\.[a-z]+|/)`' |
    sed 's/`//g' |
    while IFS=: read -r document path; do
        case $path in
        */ | */*.* | *.[cht] | *.sh | *.md | *.pml) ;;
        *) continue ;;
        esac
        case $path in
        build/* | build-* | configure) continue ;;
        esac
        found=
        # shellcheck disable=SC2086
        for file in $path src/$path src/nprdma/$path kmod/$path; do
            [ ! -e "$file" ] || found=yes
        done
        [[ $path == */* ]] || found=$(find -L "${sources[@]}" docs -name "$path")
        [ -n "$found" ] || echo "$document: $path"
    done | none "files that documents name are there"

# test/tidy has NPRDMA_*
words '`(np|uct_nprdma|nprdma|NP)_[A-Za-z0-9_]+(\(\))?`' |
    sed 's/[`()]//g' |
    while IFS=: read -r document name; do
        grep -rqw "$name" "${sources[@]}" || echo "$document: $name"
    done | none "functions and constants that documents name are there"

words '`(verbs|kmod|soft0|ucx|mpi|memory|rxe|iommu)-[a-z0-9-]+[ `]' |
    sed 's/[` ]//g' |
    while IFS=: read -r document name; do
        [ -e "test/lab/jobs/$name" ] || echo "$document: $name"
    done | none "jobs of the lab that documents name are there"

# -- options

# shown COMMAND: the options that its help names
shown() {
    { "$1" --help || "$1" -h; } 2>&1 | grep -oE -e '(^|[ ,[(])--?[a-z][a-z-]*' |
        tr -d ' ,[(' | sort -u
}

# options COMMAND: those that documents give it, in a line or within backticks
options() {
    grep -ohE "(^|[\`/ ])$1 [^\`#|]*" "${documents[@]}" | sed 's/\\-/-/g' |
        sed -E 's/ -- .*//' | grep -oE -e ' --[a-z][a-z-]*' | tr -d ' ' |
        sort -u
}

for command in nprdma_info contrib/bench.sh contrib/bench-paging.sh \
    contrib/bench-overlap.sh contrib/osu.sh test/lab/lab test/run-tests.sh; do
    run=$command
    [ "$command" != nprdma_info ] || run=$NPRDMA_PREFIX/bin/nprdma_info
    shown "$run" > "$TAP_DIR/options"
    options "$command" | grep -vx -e --help | grep -vxF -f "$TAP_DIR/options" |
        sed "s|^|$command |"
done | none "options that documents give commands are there"

for command in nprdma_info nprdma-run nprdma-trace-plot nprdma-file \
    nprdma-filed; do
    page=$(echo docs/man/"$command".[18])
    shown "$NPRDMA_PREFIX/bin/$command" > "$TAP_DIR/options"
    sed -n '/^\.SH OPTIONS/,/^\.SH [^O]/p' "$page" | sed 's/\\-/-/g' |
        grep -E '^\.(B|BI|BR|BI) "?-' | grep -oE -e '--?[a-z][a-z-]*' |
        grep -vx -e -- | sort -u > "$TAP_DIR/page"
    diff "$TAP_DIR/options" "$TAP_DIR/page" |
        sed -n "s|^< |$page has no |p; s|^> |$command --help has no |p"
done | none "manual pages have the options of --help"

run 60 "$NPRDMA_PREFIX/bin/nprdma_info" --check
sed -nE 's/^(ok|warning|missing): ([^:]*).*/\2/p' "$TAP_OUT" |
    while read -r what; do
        sed -n '/^\.SH "WHAT IS TRIED"/,/^\.SH COUNTERS/p' \
            docs/man/nprdma_info.1 | grep -qxF ".B $what" ||
            echo "nprdma_info.1: no $what"
    done | none "nprdma_info(1) has all that is tried"

run 10 grep -rhoE '"nprdma-[a-z0-9]+"' src
grep -v nprdma-info "$TAP_OUT" | tr -d '"' | sort -u |
    while read -r name; do
        grep -qF "$name" docs/guide/operations.md || echo "$name"
    done | none "shared memory and threads have their names in operations.md"

# -- figures and licenses

for document in docs/results/*.md; do
    head -n 16 "$document" | grep -qE 'soft0|TCG' ||
        echo "$document: its world is not told"
    awk -v document="$document" '
        function ends() {
            if (title != "" && tables > 0 && !commit) {
                print document ": " title " names no commit"
            }
            if (title != "" && tables > 0 && !command) {
                print document ": " title " names no command"
            }
            title = ""; tables = 0; commit = 0; command = 0
        }
        /^```/                              { code = !code; tables += code }
        !code && /^## /                     { ends(); title = $0 }
        /^\|/                               { ++tables }
        /([Mm]ade at|[Rr]ecorded in) [0-9a-f]+/     { commit = 1 }
        /contrib\/|test\/lab|lab run|`(verbs|kmod)-/ { command = 1 }
        END                                 { ends() }' "$document"
done | grep -vE 'How it is measured|What is compared|What made it faster' |
    none "tables of figures name the commit, the command and the world"

for file in LICENSE kmod/COPYING; do
    grep -qF "$file" README.md || echo "README.md: no $file"
done | none "the README names both licenses"

# -- messages

# Strings of the sources, each in one piece, and of the libraries below
{
    find -L src kmod -type f | sort | xargs cat | tr -s ' \t\n' ' ' |
        sed 's/" "//g'
    for name in libucp.so.0 libuct.so.0 libucs.so.0 libc.so.6; do
        file=$(ldconfig -p | awk -v name="$name" \
            '$1 == name { print $NF; exit }')
        [ -z "$file" ] || tr -c '[:print:]' '\n' < "$file"
    done
} > "$TAP_DIR/strings"

# messages DOCUMENT: what it quotes
quoted() {
    awk '/^\| Message \|/ { table = 1; next } !/^\|/ { table = 0 }
         table && /^\| `/ { split($0, cell, " \\| "); print cell[1] }' \
        README.md docs/guide/user-guide.md | grep -oE '`[^`]+`' | tr -d '`'
    awk '/^\.SH ERRORS/ { on = 1 } /^\.SH "SEE/ { on = 0 }
         on && /^\.B [a-z]/ && last == ".TP" { print substr($0, 4) }
         { last = $0 }' docs/man/nprdma.7 | tr ';' '\n'
}

quoted > "$TAP_DIR/messages"
tap_check "messages are quoted" test -s "$TAP_DIR/messages"
while read -r message; do
    # what is between names and numbers must stand somewhere
    sed -E "s/(UCX_NPRDMA_)?'?\.\.\.'?|'[^']*'|: |, | - |active messages/\n/g
            s/\b(is|[A-Z]|[XA]\.[YB]|[0-9]+\.[0-9]+|soft0|[a-z]+0:1)\b/\n/g" \
        <<< "$message" | sed -E "s/^[ ':,/]+//; s/[ ':,/]+$//" |
        grep -E '.{6}' |
        while read -r part; do
            grep -qF -e "$part" "$TAP_DIR/strings" ||
                echo "'$part' of: $message"
        done
done < "$TAP_DIR/messages" |
    none "messages that documents quote ($(wc -l < "$TAP_DIR/messages")) exist"

tap_done
