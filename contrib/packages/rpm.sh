#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes RPM packages of this tree, for the UCX that is installed.
set -euo pipefail

# shellcheck source=contrib/packages/common.sh
. "$(dirname "$0")/common.sh"
out=$top/build/rpms
options=()

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        cat <<'END'
Usage: rpm.sh [--out DIR] [--ucx-source DIR] [--nodeps]
Makes RPM packages of this tree, for the UCX that is installed.

  --out DIR         where they go (build/rpms)
  --ucx-source DIR  a source tree of that UCX, for the private headers; without
                    it Debian's source package is fetched, on Debian
  --nodeps          do not ask for the packages that building needs: they came
                    from another package manager, as on Debian

RPM_PACKAGER is who has made them: "NAME <ADDRESS>".
END
        exit 0
        ;;
    --out | --ucx-source)
        packages_option "${@:1:2}"
        shift
        ;;
    --nodeps) options+=(--nodeps) ;;
    *) usage_error "unknown argument '$1': see --help" ;;
    esac
    shift
done
command -v rpmbuild >/dev/null ||
    die "rpmbuild is missing: dnf install rpm-build, or apt-get install rpm"
[ -n "$source" ] || command -v dpkg-source >/dev/null ||
    usage_error "--ucx-source DIR is needed here: the source tree of the UCX" \
        "that is installed"
packages_source
installed=$(nprdma_ucx_installed) || true
[ -n "$installed" ] ||
    die "ucx_info is missing or does not run: install UCX with its tools"
ucx=$(nprdma_ucx_version "$source")
[ "$ucx" = "$installed" ] ||
    die "UCX $installed is installed, but $source holds $ucx: private headers" \
        "must be of the very version installed"

packages_version "$ucx"
release=$stamp.ucx$major.$minor
packager=${RPM_PACKAGER:-the nprdma authors <root@$(packages_host)>}
packages_open
mkdir "$work"/{SOURCES,SPECS,RPMS}

# What is in a tarball belongs to nobody here
pack=(tar -c -z --owner=0 --group=0 --numeric-owner --mtime="@$made")
nprdma_files | sort -z |
    "${pack[@]}" -C "$top" --transform "s|^|nprdma-$version/|S" --null -T - \
        -f "$work/SOURCES/nprdma-$version.tar.gz"
(
    cd "$source"
    [ ! -e LICENSE ] || printf 'LICENSE\0'
    printf 'configure.ac\0'
    find src \( -name '*.h' -o -name '*.h.in' -o -name '*.inl' \) -print0 |
        sort -z
) | "${pack[@]}" -C "$source" --transform 's|^|ucx-headers/|S' --null -T - \
    -f "$work/SOURCES/ucx-headers-$ucx.tar.gz"

spec=$work/SPECS/nprdma.spec
changelog="* $(LC_ALL=C date -u -d "@$made" '+%a %b %d %Y') $packager"
changelog+=" - $version-$release"
sed -e "s/@VERSION@/$version/g" -e "s/@RELEASE@/$release/g" \
    -e "s/@UCX_VERSION@/$ucx/g" -e "s/@UCX_MINOR@/$major.$minor/g" \
    -e "s/@UCX_NEXT@/$major.$((minor + 1))/g" -e '/@CHANGELOG@/d' \
    "$top/contrib/packages/nprdma.spec.in" >"$spec"
printf '%s\n- Made by contrib/packages/rpm.sh for UCX %s\n' "$changelog" \
    "$ucx" >>"$spec"

echo "rpm.sh: building nprdma $version-$release for UCX $ucx (log: $out/log)"
if ! rpmbuild -ba "${options[@]}" --define "_topdir $work" \
    --define "packager $packager" --define "_smp_mflags -j$(nproc)" \
    "$spec" >"$out/log" 2>&1 </dev/null
then
    tail -n 20 "$out/log" >&2
    die "rpmbuild failed: the end of $out/log is above"
fi
# Of an earlier run
for name in nprdma libnprdma libnprdma_remote 'ucx*-nprdma'; do
    find "$out" -maxdepth 1 -name "$name-*.rpm" -delete
done
find "$work/RPMS" "$work/SRPMS" -name '*.rpm' -exec mv {} "$out" \;
ls "$out"/*.rpm
