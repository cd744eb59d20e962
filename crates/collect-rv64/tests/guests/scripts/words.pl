# What a Perl program does: texts, children, signals, numbers.
# SPDX-License-Identifier: MIT OR Apache-2.0
use strict; use warnings;
my %count; open(my $in, "<", $ARGV[0]) or die; while (<$in>) { $count{lc $1}++ while /([a-z]+)/gi } close $in;
printf "%s %d\n", $_, $count{$_} for (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0..4];
pipe(my $r, my $w); my $pid = fork; if (!$pid) { close $r; print $w "from child\n"; close $w; exit 4 }
close $w; print <$r>; waitpid $pid, 0; print $? >> 8, "\n";
local $SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$;
print join(" ", map { sprintf "%.3f", sqrt $_ } 1..5), "\n"; print join(",", reverse sort { $a <=> $b } map { $_ * 7 % 11 } 1..10), "\n";
my $s = "aXbXc"; (my $t = $s) =~ tr/X/-/; print "$t ", ucfirst(lc "HELLO"), " ", unpack("H*", pack("N", 3735928559)), "\n"; exit 2;
