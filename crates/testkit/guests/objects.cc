// Objects, templates, virtual calls and exceptions: an evaluator of made-up expressions, of which
// some divide by zero: objects TURNS
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
struct DivisionByZero : std::runtime_error {
    explicit DivisionByZero(long by) : std::runtime_error("division by zero"), depth(by) {}
    long depth;
};
struct Node {
    virtual ~Node() = default;
    virtual long value(long depth) const = 0;
};
using Owned = std::unique_ptr<Node>;
struct Number : Node {
    explicit Number(long n) : number(n) {}
    long value(long) const override { return number; }
    long number;
};
template <char Op> struct Binary : Node {
    Binary(Owned a, Owned b) : left(std::move(a)), right(std::move(b)) {}
    long value(long depth) const override {
        long a = left->value(depth + 1), b = right->value(depth + 1);
        if constexpr (Op == '+') return (a + b) % 1000003;
        if constexpr (Op == '-') return a - b;
        if constexpr (Op == '*') return a * b % 1000003;
        if (b == 0) throw DivisionByZero(depth);
        return a / b;
    }
    Owned left, right;
};
static Owned make(unsigned long &state, int depth) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    unsigned pick = (unsigned)(state >> 40);
    if (depth == 0 || pick % 7 == 0) return std::make_unique<Number>(pick / 7 % 10);
    Owned left = make(state, depth - 1), right = make(state, depth - 1);
    switch (pick % 4) {
    case 0: return std::make_unique<Binary<'+'>>(std::move(left), std::move(right));
    case 1: return std::make_unique<Binary<'-'>>(std::move(left), std::move(right));
    case 2: return std::make_unique<Binary<'*'>>(std::move(left), std::move(right));
    default: return std::make_unique<Binary<'/'>>(std::move(left), std::move(right));
    }
}
int main(int argc, char **argv) {
    long turns = argc > 1 ? std::atol(argv[1]) : 40;
    unsigned long state = 5;
    std::map<std::string, long> seen;
    long sum = 0;
    std::vector<Owned> kept;
    for (long i = 0; i < turns; i++) {
        Owned tree = make(state, 8);
        for (int again = 0; again < 4; again++) {
            try {
                sum = (sum + tree->value(0)) % 1000003;
                seen["good"]++;
            } catch (const DivisionByZero &e) {
                seen[e.what() + (" at " + std::to_string(e.depth))]++;
            }
        }
        if (i % 16 == 0) kept.push_back(std::move(tree));
        if (kept.size() > 8) kept.erase(kept.begin());
    }
    std::printf("sum %ld", sum);
    for (const auto &[what, count] : seen) std::printf(", %s: %ld", what.c_str(), count);
    std::printf("\n");
    return seen["good"] > 0 ? 0 : 1;
}
