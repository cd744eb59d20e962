#!/bin/sh
# Fetches the sources of a real project with the machine's own package client and builds it with
# any compiler, the way its users do: make or cmake, in parallel.
#
#   build.sh CACHE NAME FOLDER CC FLAGS
#
# CACHE keeps what was fetched; FOLDER gets the build, in it a program NAME. NAME is bzip2, lua,
# sqlite3, zstd (by make) or zstd-cmake. Status 3: the sources cannot be had. Nothing is fetched
# unless ICHNOS_FETCH is set.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -eu
cache=$1 name=$2 folder=$3 cc=$4 flags=$5
case $name in
    lua) package=lua5.4 ;;
    zstd*) package=libzstd ;;
    *) package=$name ;;
esac

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
    apt-get -q source --download-only "$package" >&2 || exit 3
    unset APT_CONFIG
    cd "$cache"
    mv "$package.new" "$package"
}

mkdir -p "$cache" "$folder"
cache=$(cd "$cache" && pwd)
folder=$(cd "$folder" && pwd)
if [ ! -d "$cache/$package" ]; then
    [ -n "${ICHNOS_FETCH:-}" ] || exit 3
    (fetch) || exit 3
fi
tar -C "$folder" --strip-components=1 -xf "$cache/$package"/*.orig.tar.*z
cd "$folder"
case $name in
    bzip2)
        make -s -j2 CC="$cc" CFLAGS="-Wall -D_FILE_OFFSET_BITS=64 -g $flags" bzip2
        ;;
    lua)
        # Its hashes begin with the time of day; with a constant, equal runs are equal.
        make -s -j2 -C src CC="$cc" CFLAGS="-DLUA_USE_POSIX -g $flags -D'luai_makeseed(L)=7u'" lua
        mv src/lua lua
        ;;
    sqlite3)
        if [ ! -f "$cache/$package/sqlite3.c" ]; then
            ./configure -q --disable-tcl --disable-readline >&2
            make -s sqlite3.c shell.c >&2
            cp sqlite3.c shell.c sqlite3.h "$cache/$package/"
        fi
        cp "$cache/$package"/*.[ch] .
        printf 'sqlite3: shell.o sqlite3.o\n\t$(CC) $^ -lpthread -lm -ldl -o $@\n' > own.mk
        make -s -j2 -f own.mk CC="$cc" CFLAGS="-g -DSQLITE_THREADSAFE=1 $flags" sqlite3
        ;;
    zstd)
        make -s -j2 -C programs CC="$cc" CFLAGS="-g $flags" ZSTD_NO_ASM=0 \
            HAVE_ZLIB=0 HAVE_LZMA=0 HAVE_LZ4=0 zstd
        mv programs/zstd zstd
        ;;
    zstd-cmake)
        # cmake takes a compiler's first word for the compiler: a script stands for both words.
        printf '#!/bin/sh\nexec %s "$@"\n' "$cc" > compiler
        chmod +x compiler
        cmake -S build/cmake -B made -DCMAKE_C_COMPILER="$PWD/compiler" -DCMAKE_C_FLAGS="-g $flags" \
            -DCMAKE_BUILD_TYPE=None -DZSTD_BUILD_SHARED=OFF -DZSTD_BUILD_TESTS=OFF > cmake.log
        cmake --build made -j 2 --target zstd >> cmake.log
        mv made/programs/zstd zstd-cmake
        ;;
esac
