/* A program without a library that does what programs do: sorts, searches, walks
 * lists and trees, multiplies matrices, copies structures, calls through pointers.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
typedef unsigned long u64;
typedef unsigned int u32;

struct node { struct node *left, *right; u64 key; u32 weight; short tag; };

static struct node pool[64];
static u32 used;
static double a[8][8], b[8][8], c[8][8];
static int numbers[96];
static char text[256];
static u64 seed = 12345;

static u32 random_number(void)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (u32)(seed >> 33);
}

static __attribute__((noinline)) void sort(int *v, int n)
{
    if (n < 2)
        return;
    int pivot = v[n / 2], i = 0, j = n - 1;
    while (i <= j) {
        while (v[i] < pivot)
            i++;
        while (v[j] > pivot)
            j--;
        if (i <= j) {
            int t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
    }
    sort(v, j + 1);
    sort(v + i, n - i);
}

static __attribute__((noinline)) struct node *insert(struct node *root, u64 key)
{
    if (!root) {
        struct node *n = &pool[used++ % 64];
        n->left = n->right = 0;
        n->key = key;
        n->weight = (u32)key * 3;
        n->tag = (short)key;
        return n;
    }
    if (key < root->key)
        root->left = insert(root->left, key);
    else
        root->right = insert(root->right, key);
    return root;
}

static __attribute__((noinline)) u64 walk(const struct node *n, u64 (*visit)(const struct node *, u64), u64 sum)
{
    while (n) {
        sum = walk(n->left, visit, visit(n, sum));
        n = n->right;
    }
    return sum;
}

static u64 add_key(const struct node *n, u64 sum) { return sum + n->key; }
static u64 add_weight(const struct node *n, u64 sum) { return sum + n->weight + (u64)n->tag; }

static __attribute__((noinline)) void multiply(void)
{
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            double s = 0;
            for (int k = 0; k < 8; k++)
                s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
}

static __attribute__((noinline)) int find(const char *hay, const char *needle)
{
    for (int i = 0; hay[i]; i++) {
        int k = 0;
        while (needle[k] && hay[i + k] == needle[k])
            k++;
        if (!needle[k])
            return i;
    }
    return -1;
}

static __attribute__((noinline)) u32 classify(u32 x)
{
    switch (x % 7) {
    case 0: return x + 1;
    case 1: return x * 5;
    case 2: return x >> 3;
    case 3: numbers[x % 96] ^= 1; return 3;
    case 5: return (u32)pool[x % 64].key;
    default: return 0;
    }
}

static __attribute__((noinline)) u32 mix(struct node n, u32 i) { return n.weight ^ (u32)n.tag ^ i; }

static __attribute__((noinline)) u64 everything(void)
{
    u64 result = 0;
    for (u32 i = 0; i < 96; i++)
        numbers[i] = (int)(random_number() % 1000);
    sort(numbers, 96);
    struct node *root = 0;
    for (int i = 0; i < 40; i++)
        root = insert(root, random_number() % 500);
    result += walk(root, add_key, 0) + walk(root, add_weight, 1);
    for (int i = 0; i < 64; i++)
        a[i / 8][i % 8] = i, b[i % 8][i / 8] = i * 2;
    multiply();
    for (u32 i = 0; i < 255; i++)
        text[i] = (char)('a' + random_number() % 3);
    result += (u64)find(text, "abca") + (u64)find(text, "aaaaaaaaaaaa");
    for (u32 i = 0; i < 60; i++)
        result += classify(random_number()) + mix(pool[i % 64], i);
    return result;
}

void _start(void)
{
    __asm__ volatile("and $-16, %%rsp" ::: "memory");
    u64 result = everything();
    __asm__ volatile("syscall" ::"a"(60ul), "D"(result & 1) : "rcx", "r11", "memory");
    __builtin_unreachable();
}
