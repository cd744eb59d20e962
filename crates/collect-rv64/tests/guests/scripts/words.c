/* Something for a compiler: it is compiled, not run. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
struct tree { struct tree *left, *right; long key; double weight; };
static double sum(const struct tree *t, int depth)
{
    return t && depth ? t->weight + sum(t->left, depth - 1) + sum(t->right, depth - 1) : 0;
}
long find(struct tree *t, long key, double *weights, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        weights[i] = weights[i] * 1.5 + sum(t, (int)(i % 7));
    while (t && t->key != key)
        t = key < t->key ? t->left : t->right;
    switch (key & 7) {
    case 0: return t ? t->key / 10 : -1;
    case 1: return t ? t->key % 10 : -2;
    case 5: return (long)weights[0];
    default: return t != 0;
    }
}
