//! Which pieces lie on a common cycle: strongly connected components, by Tarjan's
//! method with a stack of its own, since real functions have thousands of pieces.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// For each node of a graph the number of its component. An edge is its target with
/// something that does not matter here.
pub(crate) fn components<T>(edges: &[Vec<(usize, T)>]) -> Vec<usize> {
    let mut search = Search {
        edges,
        index: vec![UNSEEN; edges.len()],
        low: vec![0; edges.len()],
        component: vec![UNSEEN; edges.len()],
        open: Vec::new(),
        next: 0,
    };
    for node in 0..edges.len() {
        if search.index[node] == UNSEEN {
            search.from(node);
        }
    }
    search.component
}

const UNSEEN: usize = usize::MAX;

struct Search<'a, T> {
    edges: &'a [Vec<(usize, T)>],
    index: Vec<usize>,
    low: Vec<usize>,
    component: Vec<usize>,
    /// Nodes seen whose component is not known yet.
    open: Vec<usize>,
    next: usize,
}

impl<T> Search<'_, T> {
    fn enter(&mut self, node: usize) {
        self.index[node] = self.next;
        self.low[node] = self.next;
        self.next += 1;
        self.open.push(node);
    }

    fn from(&mut self, root: usize) {
        // Nodes on the way, each with the number of its next edge.
        let mut way = vec![(root, 0)];
        self.enter(root);
        while let Some((node, edge)) = way.last_mut() {
            let node = *node;
            if let Some((to, _)) = self.edges[node].get(*edge) {
                *edge += 1;
                if self.index[*to] == UNSEEN {
                    self.enter(*to);
                    way.push((*to, 0));
                } else if self.component[*to] == UNSEEN {
                    self.low[node] = self.low[node].min(self.index[*to]);
                }
                continue;
            }
            way.pop();
            if let Some((before, _)) = way.last() {
                self.low[*before] = self.low[*before].min(self.low[node]);
            }
            if self.low[node] == self.index[node] {
                self.close(node);
            }
        }
    }

    /// All open nodes from `root` on are one component.
    fn close(&mut self, root: usize) {
        while let Some(node) = self.open.pop() {
            self.component[node] = root;
            if node == root {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn cycles_are_found() {
        // 0 -> 1 -> 2 -> 1, 2 -> 3 -> 3, 4 alone.
        let edges = [vec![1], vec![2], vec![1, 3], vec![3], vec![]];
        let edges = edges.map(|to| to.into_iter().map(|t| (t, ())).collect::<Vec<_>>());
        let found = components(&edges);
        assert_eq!(found[1], found[2]);
        let mut all = [found[0], found[1], found[3], found[4]];
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{found:?}");
    }
}
