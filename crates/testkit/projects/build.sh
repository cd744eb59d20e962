#!/bin/sh
# Builds a real project from its own sources (sources.sh fetches them) with any compiler, the way its
# users do: make or cmake, in parallel.
#
#   build.sh CACHE NAME FOLDER CC FLAGS
#
# CACHE keeps what was fetched; FOLDER gets the build, in it a program NAME. NAME is bzip2, lua,
# sqlite3, zstd (by make) or zstd-cmake; lua-shared, sqlite3-shared and zstd-shared are small programs with most of
# their code in liblua.so, libsqlite3.so and libzstd.so, which lie beside them. Status 3: the sources cannot be had. Nothing is fetched
# unless ICHNOS_FETCH is set.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -eu
cache=$1 name=$2 folder=$3 cc=$4 flags=$5
case $name in
    lua*) package=lua5.4 ;;
    sqlite3*) package=sqlite3 ;;
    zstd*) package=libzstd ;;
    *) package=$name ;;
esac

mkdir -p "$cache" "$folder"
cache=$(cd "$cache" && pwd)
folder=$(cd "$folder" && pwd)
sh "$(dirname "$0")/sources.sh" "$cache" "$package" "$folder" || exit 3
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
    lua-shared)
        make -s -j2 -C src CC="$cc" CFLAGS="-fPIC -DLUA_USE_POSIX -g $flags -D'luai_makeseed(L)=7u'" liblua.a lua.o
        $cc -shared -Wl,--whole-archive src/liblua.a -Wl,--no-whole-archive -lm -o liblua.so
        $cc src/lua.o -L. -llua -Wl,-rpath,"$folder" -o lua-shared
        ;;
    sqlite3*)
        if [ ! -f "$cache/$package/sqlite3.c" ]; then
            ./configure -q --disable-tcl --disable-readline >&2
            make -s sqlite3.c shell.c >&2
            cp sqlite3.c shell.c sqlite3.h "$cache/$package/"
        fi
        cp "$cache/$package"/*.[ch] .
        printf 'sqlite3: shell.o sqlite3.o\n\t$(CC) $^ -lpthread -lm -ldl -o $@\n' > own.mk
        printf 'libsqlite3.so: sqlite3.o\n\t$(CC) -shared $^ -lpthread -lm -ldl -o $@\n' >> own.mk
        printf 'sqlite3-shared: shell.o libsqlite3.so\n\t$(CC) $< -L. -lsqlite3 -Wl,-rpath,%s -o $@\n' "$folder" >> own.mk
        if [ "$name" = sqlite3-shared ]; then flags="$flags -fPIC"; fi
        make -s -j2 -f own.mk CC="$cc" CFLAGS="-g -DSQLITE_THREADSAFE=1 $flags" "$name"
        ;;
    zstd)
        make -s -j2 -C programs CC="$cc" CFLAGS="-g $flags" ZSTD_NO_ASM=0 \
            HAVE_ZLIB=0 HAVE_LZMA=0 HAVE_LZ4=0 zstd
        mv programs/zstd zstd
        ;;
    zstd-shared)
        make -s -j2 -C lib CC="$cc" CFLAGS="-fPIC -g $flags" ZSTD_NO_ASM=0 libzstd-mt >&2
        cp lib/libzstd.so.*.* libzstd.so.1
        ln -s libzstd.so.1 libzstd.so
        make -s -j2 -C programs CC="$cc" CFLAGS="-g $flags" LDFLAGS="-L$folder -Wl,-rpath,$folder" \
            HAVE_ZLIB=0 HAVE_LZMA=0 HAVE_LZ4=0 zstd-dll
        mv programs/zstd zstd-shared
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
