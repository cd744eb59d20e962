// A QEMU plugin that counts the instructions executed, one inline addition each,
// and prints the sum at the end. Only the few names of QEMU's plugin interface
// (version 1) that it uses are declared, so that no header is needed.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum inline_operation { ADD_U64 };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, enum inline_operation,
                                                void *, uint64_t);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

static uint64_t count;

static void translated(plugin_id id, struct qemu_plugin_tb *tb) {
    (void)id;
    for (size_t n = 0; n < qemu_plugin_tb_n_insns(tb); n++)
        qemu_plugin_register_vcpu_insn_exec_inline(qemu_plugin_tb_get_insn(tb, n), ADD_U64, &count, 1);
}

static void at_exit(plugin_id id, void *data) {
    (void)id, (void)data;
    fprintf(stderr, "instructions: %" PRIu64 "\n", count);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info,
                                                               int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
