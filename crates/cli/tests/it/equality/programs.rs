//! Real programs, small inputs for them, and how each is compared.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::tool;

use super::compare::{How, Place};
use crate::support::{good, native};

/// A program to compare.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub command: &'static [&'static str],
    pub how: How,
}

const fn whole(name: &'static str, command: &'static [&'static str]) -> Case {
    Case { name, command, how: How::Whole }
}

/// A program of several threads or processes at once.
const fn free(name: &'static str, command: &'static [&'static str]) -> Case {
    Case { name, command, how: How::Free }
}

/// A program whose first thread waits for several others.
const fn made(name: &'static str, command: &'static [&'static str]) -> Case {
    Case { name, command, how: How::Made }
}

/// Only the first instructions of a program that takes hours to step.
const fn first(name: &'static str, most: u64, command: &'static [&'static str]) -> Case {
    Case { name, command, how: How::First(most) }
}

/// A folder with inputs for the programs, and some programs that are nobody's package.
pub fn inputs() -> Place {
    let place = Place::new();
    let folder = &place.folder;
    let lines: String = (0..30).map(|i| format!("{} line {i}\n", i * 7919 % 101)).collect();
    folder.write("in.txt", lines.as_bytes());
    folder.write("bc.in", b"2^10\nquit\n");
    folder.write("make.in", b"all:\n\t@echo hello\n");
    folder.write("a.s", b".text\nnop\n");
    good(native(folder, "as", &["-o", "a.o", "a.s"]));
    folder.write("in.json", b"{\"a\": [1, 2, {\"b\": \"c\"}], \"d\": null}\n");
    folder.write("in.ppm", b"P3 2 2 255 1 2 3 4 5 6 7 8 9 10 11 12\n");
    folder.write("a.c", b"int f(int x) { return x + 1; }\n");
    folder.write("hello.f90", b"program hello\n print '(i5,f8.3)', 7, sqrt(2.0)\nend program\n");
    place.pin();
    let link = |to: &std::path::Path, name: &str| {
        // One that is missing is skipped later.
        let _ = std::os::unix::fs::symlink(to, folder.path().join(name));
    };
    let compiler = native(folder, "gcc", &["-print-prog-name=cc1"]);
    link(compiler.stdout.trim().as_ref(), "cc1");
    link(&guest::build("throw.cc", Link::Static, &[]), "throw");
    if tool::find("gfortran").is_some() {
        good(native(folder, "gfortran", &["-static", "-O1", "-o", "hello", "hello.f90"]));
    }
    place
}

/// Whether a case's program is there; says if it is not.
pub fn is_there(place: &Place, case: &Case) -> bool {
    match case.command[0].strip_prefix("./") {
        None => tool::have(&format!("equality {}", case.name), &case.command[..1]),
        Some(own) if place.folder.path().join(own).exists() => true,
        Some(own) => {
            tool::skip(&format!("equality {}", case.name), &format!("no {own}"));
            false
        }
    }
}

/// All of them, those that take long first. Python is not run with `-I`, which would have it choose its hashes at random
/// whatever the environment says.
///
/// None makes a file that its next run would find: cc1 asks, long before it opens its output, whether that is a link, and
/// goes other ways if there is none yet.
pub const LIST: &[Case] = &[
    first("cc1", 25_000_000, &["./cc1", "-quiet", "-O1", "a.c", "-o", "/dev/null"]),
    first("jq", 25_000_000, &["jq", ".a[2].b", "in.json"]),
    whole("python3", &["/usr/bin/python3", "-s", "-S", "-c", "pass"]),
    whole("curl", &["curl", "-q", "--version"]),
    whole("identify", &["identify", "in.ppm"]),
    whole("openssl dgst", &["openssl", "dgst", "-sha256", "in.txt"]),
    whole("openssl", &["openssl", "version"]),
    whole("vim", &["vim", "-es", "-u", "NONE", "-c", "q"]),
    whole("busybox md5sum", &["busybox", "md5sum", "in.txt"]),
    whole("busybox awk", &["busybox", "awk", "{s+=$1}END{print s}", "in.txt"]),
    whole("busybox gzip", &["busybox", "gzip", "-c", "in.txt"]),
    whole("busybox sort", &["busybox", "sort", "-n", "in.txt"]),
    whole("busybox tar", &["busybox", "tar", "cf", "/dev/null", "in.txt"]),
    whole("gawk", &["gawk", "{s+=$1}END{print s}", "in.txt"]),
    whole("ls", &["ls", "-l", "/usr"]),
    whole("cat", &["cat", "in.txt"]),
    whole("wc", &["wc", "in.txt"]),
    whole("head", &["head", "-2", "in.txt"]),
    whole("tr", &["tr", "a", "b"]),
    whole("cut", &["cut", "-c1-3", "in.txt"]),
    whole("uniq", &["uniq", "in.txt"]),
    whole("od", &["od", "-c", "in.txt"]),
    whole("md5sum", &["md5sum", "in.txt"]),
    whole("sha256sum", &["sha256sum", "in.txt"]),
    whole("base64", &["base64", "in.txt"]),
    whole("seq", &["seq", "10"]),
    whole("factor", &["factor", "12345"]),
    whole("expr", &["expr", "1", "+", "2"]),
    whole("printf", &["printf", "%d", "3"]),
    whole("stat", &["stat", "-c", "%s", "in.txt"]),
    whole("du", &["du", "in.txt"]),
    whole("dd", &["dd", "if=in.txt", "of=/dev/null", "status=none"]),
    whole("cmp", &["cmp", "in.txt", "in.txt"]),
    whole("diff", &["diff", "in.txt", "bc.in"]),
    whole("date", &["date", "-d", "@0"]),
    whole("xargs", &["xargs", "echo"]),
    // It hears of its child's end while it reads, or later.
    free("bash", &["bash", "-c", "for i in 1 2; do echo $i; done; x=$(echo hi); echo $x"]),
    whole("dash", &["dash", "-c", "for i in 1 2; do echo $i $$ $PPID $((6 * 7)); done"]),
    whole("xz", &["xz", "-kc", "in.txt"]),
    whole("bzip2", &["bzip2", "-c", "in.txt"]),
    whole("awk", &["awk", "{s+=$1}END{print s}", "in.txt"]),
    whole("sed", &["sed", "s/line/row/", "in.txt"]),
    whole("bc", &["bc", "-q", "bc.in"]),
    whole("sqlite3", &["sqlite3", ":memory:", "select 1+1;"]),
    whole("tar", &["tar", "cf", "/dev/null", "in.txt"]),
    whole("find", &["find", "."]),
    whole("make", &["make", "-f", "make.in"]),
    whole("git", &["git", "--version"]),
    whole("git hash-object", &["git", "hash-object", "in.txt"]),
    whole("as", &["as", "-o", "/dev/null", "a.s"]),
    whole("ld", &["ld", "--version"]),
    whole("ld -r", &["ld", "-r", "-o", "/dev/null", "a.o"]),
    whole("lua", &["lua5.4", "-e", "local t={} for i=1,50 do t[i]=i*i end print(#t)"]),
    whole("perl", &["perl", "-e", "my %h=(a=>1,b=>2);print join(\",\",sort keys %h),\"\\n\""]),
    whole("sort", &["sort", "-n", "in.txt"]),
    whole("grep", &["grep", "-c", "line 1", "in.txt"]),
    whole("gzip", &["gzip", "-c", "in.txt"]),
    whole("env", &["env", "wc", "in.txt"]),
    whole("ldconfig", &["/sbin/ldconfig", "-p"]),
    whole("static C++", &["./throw"]),
    whole("static Fortran", &["./hello"]),
    whole(
        "bash-static",
        &["bash-static", "-c", "for i in 1 2; do echo $i; done; echo $((6 * 7)) ${PATH%:*}"],
    ),
    made("zstd", &["zstd", "-q", "-c", "in.txt"]),
    made("zstd -T2", &["zstd", "-T2", "-q", "-c", "in.txt"]),
    free("sort in parallel", &["sort", "--parallel=2", "-n", "in.txt"]),
    free("xz -T2", &["xz", "-T2", "-kc", "in.txt"]),
    free("pigz", &["pigz", "-p2", "-c", "in.txt"]),
    free("pipeline", &["bash", "-c", "cat in.txt | wc -l"]),
];
