/* Executes a program one instruction at a time and writes its registers before
 * each to standard output: rip, the sixteen general registers as instructions
 * number them, the fs and gs bases.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long left = atol(argv[2]);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execl(argv[1], argv[1], (char *)0);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    while (WIFSTOPPED(status) && left-- > 0) {
        struct user_regs_struct r;
        ptrace(PTRACE_GETREGS, child, 0, &r);
        uint64_t row[19] = {r.rip, r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp,
                            r.rsi, r.rdi, r.r8,  r.r9,  r.r10, r.r11, r.r12,
                            r.r13, r.r14, r.r15, r.fs_base, r.gs_base};
        fwrite(row, sizeof row, 1, stdout);
        ptrace(PTRACE_SINGLESTEP, child, 0, 0);
        waitpid(child, &status, 0);
    }
    if (WIFSTOPPED(status)) {
        kill(child, 9);
        waitpid(child, &status, 0);
    }
    return 0;
}
