# Counts, and says by a flag whether the number was odd, as no compiler would.
# SPDX-License-Identifier: MIT OR Apache-2.0
	.text
	.globl	odd
	.type	odd, @function
odd:
	lea	1(%rdi), %rax
	shr	$1, %rdi
	ret
	.size	odd, .-odd
	.section	.note.GNU-stack, "", @progbits
