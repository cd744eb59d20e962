#!/bin/sh
# Unpacks the original sources of a Debian package, fetched with the machine's own package client.
#
#   sources.sh CACHE PACKAGE FOLDER
#
# CACHE keeps what was fetched; FOLDER gets the sources. Status 3: they cannot be had. Nothing is
# fetched unless ICHNOS_FETCH is set.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -eu
cache=$1 package=$2 folder=$3

# The package's original tar file, in $cache/$package.
fetch() {
    mkdir -p "$cache/$package.new/lists/partial" "$cache/$package.new/state"
    cd "$cache/$package.new"
    lists=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true)
    mirror=$(echo "$lists" | grep -o 'https\?://[^ ]*/debian/\?\( \|$\)' | head -n 1)
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -n "$mirror" ] && [ -n "$suite" ] || exit 3
    : > status
    echo "deb-src [signed-by=$key] $mirror $suite main" > sources.list
    cat > apt.conf <<END
Dir::State "$PWD/state";
Dir::State::lists "$PWD/lists";
Dir::State::status "$PWD/status";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "$PWD/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Sandbox::User "root";
END
    export APT_CONFIG="$PWD/apt.conf"
    apt-get -q update >&2 || exit 3
    apt-get -q source --download-only --only-source "$package" >&2 || true
    # What the package adds to the original sources is not needed.
    ls ./*.orig.tar.*z >/dev/null || exit 3
    unset APT_CONFIG
    cd "$cache"
    mv "$package.new" "$package"
}

mkdir -p "$cache" "$folder"
cache=$(cd "$cache" && pwd)
if [ ! -d "$cache/$package" ]; then
    [ -n "${ICHNOS_FETCH:-}" ] || exit 3
    (fetch) || exit 3
fi
tar -C "$folder" --strip-components=1 -xf "$cache/$package"/*.orig.tar.*z
