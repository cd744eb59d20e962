// Needs no library and looks at nothing that a kernel chooses: every simulator
// must execute exactly the same instructions. Sorts, multiplies, searches,
// recurses and jumps through tables, then exits with a checksum.
typedef unsigned long word;

static word state = 1;
static int numbers[3000];
static double grid[40][40];

static word next(void) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return state >> 33;
}

static word recurse(word n) { return n < 2 ? n : recurse(n - 1) + recurse(n - 2); }

static void sort(int *a, long low, long high) {
    while (low < high) {
        int pivot = a[(low + high) / 2];
        long i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i <= j) {
                int t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        sort(a, low, j);
        low = i;
    }
}

static word add(word a) { return a + 3; }
static word mix(word a) { return a * 31 ^ a >> 7; }
static word turn(word a) { return a << 5 | a >> 59; }
static word (*const table[])(word) = {add, mix, turn};

static void leave(word status) {
    register word a0 __asm__("a0") = status;
    register word a7 __asm__("a7") = 94;
    __asm__ volatile("ecall" : : "r"(a0), "r"(a7));
}

void _start(void) {
    __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop");
    word sum = recurse(17);
    for (int i = 0; i < 3000; i++) numbers[i] = (int)next();
    sort(numbers, 0, 2999);
    for (int i = 0; i < 40; i++)
        for (int j = 0; j < 40; j++) grid[i][j] = (double)(next() % 1000) / 7;
    for (int i = 1; i < 40; i++)
        for (int j = 1; j < 40; j++) grid[i][j] += grid[i - 1][j - 1] * 0.5;
    for (int i = 0; i < 3000; i++) sum = table[next() % 3](sum + (word)numbers[i]);
    leave((sum + (word)grid[39][39]) & 127);
}
