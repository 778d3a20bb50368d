# SPDX-License-Identifier: BSD-3-Clause
# Packages from the mirrors that this machine's own apt uses, through an apt
# that writes only in a directory of ours.
# shellcheck shell=bash disable=SC2034

# Lines "URI RELEASE COMPONENT KEYRING" of the distribution itself
apt_mirrors() {
    local uri release component entry origin keyring id
    # shellcheck disable=SC1091
    id=$(. /etc/os-release && echo "$ID")
    # shellcheck disable=SC2016
    apt-get indextargets --format \
        '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SOURCESENTRY) x$(ORIGIN)' \
        'Created-By: Packages' 2>/dev/null |
        while read -r uri release component entry origin; do
            # Before the first apt-get update the origin is not known
            # shellcheck disable=SC2016
            case ${origin,,} in
            "x$id"* | x | 'x$(origin)') ;;
            *) continue ;;
            esac
            keyring=$(sed -n -e 's/^[Ss]igned-[Bb]y: *\(\/.*\)/\1/p' \
                -e 's/.*signed-by=\(\/[^] ,]*\).*/\1/p' "${entry%:*}" \
                2>/dev/null | head -n 1)
            echo "$uri $release $component ${keyring:--}"
        done | sort -u
}

# apt_sources SUITE: our sources.list: the suite, its updates and security.
# A suite of backports that the machine does not have itself is on the mirror
# of the suite it belongs to, and a suite of another Debian on that of ours.
apt_sources() {
    local suite=$1 base=${1%-backports} uri release component keyring options
    local mirrors own
    mirrors=$(apt_mirrors)
    if ! grep -q " $base " <<<"$mirrors"; then
        # shellcheck disable=SC1091
        own=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
        mirrors=$(sed -n "s/ $own / $base /p" <<<"$mirrors")
    fi
    while read -r uri release component keyring; do
        options=
        if [ "$keyring" != - ]; then
            options="[signed-by=$keyring] "
        fi
        case $release in
        "$base" | "$base"-updates | "$base"-security)
            echo "deb $options$uri $release $component"
            ;;&
        "$base")
            if [ "$suite" != "$base" ]; then
                echo "deb $options$uri $suite $component"
            fi
            ;;
        esac
    done <<<"$mirrors" | sort -u
}

# apt_open SUITE DIR: fetches the lists of that suite into DIR; sets APT_GET,
# APT_CACHE and APT_SOURCES. Fails with a line in APT_ERROR if the mirror lacks
# it.
apt_open() {
    local suite=$1 dir=$2
    APT_SOURCES=$dir/sources.list
    APT_ERROR=
    mkdir -p "$dir"/{lists,cache/archives}/partial
    apt_sources "$suite" >"$APT_SOURCES"
    if [ ! -s "$APT_SOURCES" ]; then
        APT_ERROR="this machine's apt knows no mirror of Debian ${suite%-*}"
        return 1
    fi
    local -a options=(-q -o "Dir::Etc::sourcelist=$APT_SOURCES"
        -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$dir/lists"
        -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root
        -o Acquire::Retries=2 -o Acquire::http::Timeout=60
        -o APT::Get::List-Cleanup=0)
    APT_GET=(apt-get "${options[@]}" -o Debug::NoLocking=1)
    APT_CACHE=(apt-cache "${options[@]}")
    if ! "${APT_GET[@]}" --error-on=any update >"$dir/log" 2>&1 </dev/null
    then
        APT_ERROR="the mirror does not serve $suite ($(grep -m 1 '^E:' \
            "$dir/log" | cut -c 4-100 | sed 's|[a-z]*://[^ ]*|...|g' || true))"
        return 1
    fi
}

# apt_fetch DIR PACKAGE...: the .deb files into DIR
apt_fetch() {
    local dir=$1
    shift
    (cd "$dir" && "${APT_GET[@]}" download "$@") >"$dir/log" 2>&1 </dev/null ||
        {
            tail -n 5 "$dir/log" >&2
            return 1
        }
}
