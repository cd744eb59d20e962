// A QEMU plugin that simulates two first-level LRU caches (32 KiB, 8 ways, lines of
// 64 bytes) with a callback for every instruction and every access, as the cache
// plugin in QEMU's own sources does, which distributions do not package. Only the
// few names of QEMU's plugin interface (version 1) that it uses are declared.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum flags { NO_REGISTERS };
enum direction { READ = 1, WRITE, BOTH };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
                                            void (*)(unsigned, void *), enum flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                      void (*)(unsigned, uint32_t, uint64_t, void *), enum flags,
                                      enum direction, void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

enum { SETS = 64, WAYS = 8, SHIFT = 6 };

struct cache {
    uint64_t lines[SETS][WAYS];
    uint64_t used[SETS][WAYS];
    uint64_t clock, accesses, misses;
};
static struct cache code, data;

static void use(struct cache *cache, uint64_t address) {
    uint64_t line = (address >> SHIFT) + 1;
    size_t set = line % SETS, oldest = 0;
    cache->accesses++;
    cache->clock++;
    for (size_t way = 0; way < WAYS; way++) {
        if (cache->lines[set][way] == line) {
            cache->used[set][way] = cache->clock;
            return;
        }
        if (cache->used[set][way] < cache->used[set][oldest]) oldest = way;
    }
    cache->misses++;
    cache->lines[set][oldest] = line;
    cache->used[set][oldest] = cache->clock;
}

static void executed(unsigned cpu, void *address) {
    (void)cpu;
    use(&code, (uint64_t)address);
}

static void accessed(unsigned cpu, uint32_t info, uint64_t address, void *pc) {
    (void)cpu, (void)info, (void)pc;
    use(&data, address);
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb) {
    (void)id;
    for (size_t n = 0; n < qemu_plugin_tb_n_insns(tb); n++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, n);
        void *pc = (void *)qemu_plugin_insn_vaddr(insn);
        qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, NO_REGISTERS, pc);
        qemu_plugin_register_vcpu_mem_cb(insn, accessed, NO_REGISTERS, BOTH, pc);
    }
}

static void at_exit(plugin_id id, void *unused) {
    (void)id, (void)unused;
    fprintf(stderr, "code %" PRIu64 " misses %" PRIu64 " data %" PRIu64 " misses %" PRIu64 "\n",
            code.accesses, code.misses, data.accesses, data.misses);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info,
                                                               int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
