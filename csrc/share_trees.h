/*
 * TREE of shares.h: gradients of leaves, which are parts of a batch, are added along a tree.
 */

#ifndef SHARE_TREES_H
#define SHARE_TREES_H

#include "images.h"
#include "lock.h"
#include "shares.h"
#include "train.h"
#include "update.h"

struct tree {
    const struct share *share;
    int leaves, round; /* in each round, a rank sends one subtree */
};

static int first_leaf(const struct tree *tree, int rank) { return part_start(tree->leaves, rank, tree->share->ranks); }

/* The end of the largest subtree that begins with leaf `first` and has no leaf from `end` on. */
static int subtree_end(const struct tree *tree, int first, int end)
{
    int low = 0, high = tree->leaves;
    while (low < first || high > end) {
        const int middle = low + (high - low) / 2;
        if (first < middle)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* How many subtrees begin with one of the leaves start .. first - 1 and end before `end`: so many sums are complete. */
static int count_additions(const struct tree *tree, int start, int first, int end)
{
    int low = 0, high = tree->leaves, count = 0;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        count += high == end && start <= low && low < first;
        if (end <= middle)
            high = middle;
        else
            low = middle;
    }
    return count;
}

static int count_subtrees(const struct tree *tree, int rank)
{
    int count = 0;
    for (int leaf = first_leaf(tree, rank), end = first_leaf(tree, rank + 1); leaf < end; count++)
        leaf = subtree_end(tree, leaf, end);
    return count;
}

static Py_ssize_t slice_start(const struct share *share, int rank) { return rank_start(DATA_COUNT, rank, share->ranks); }

static Py_ssize_t slice_count(const struct share *share, int rank)
{
    return slice_start(share, rank + 1) - slice_start(share, rank);
}

static Py_ssize_t bytes_of_slice(int rank, const void *share) { return slice_count(share, rank) * (Py_ssize_t)sizeof(real); }

static Py_ssize_t bytes_to_send(int rank, const void *what)
{
    const struct tree *const tree = what;
    return tree->round < count_subtrees(tree, tree->share->rank) ? bytes_of_slice(rank, tree->share) : 0;
}

static Py_ssize_t bytes_to_receive(int rank, const void *what)
{
    const struct tree *const tree = what;
    return tree->round < count_subtrees(tree, rank) ? bytes_of_slice(tree->share->rank, tree->share) : 0;
}

/* The flag of each rank, and the losses of its leaves. */
static Py_ssize_t bytes_of_losses(int rank, const void *what)
{
    const struct tree *const tree = what;
    return (Py_ssize_t)sizeof(double) * (1 + first_leaf(tree, rank + 1) - first_leaf(tree, rank));
}

static void add_reals(real *restrict to, const real *restrict from, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* After a leaf has been added up in grad[]: `sums` are the subtrees of this rank that are complete so far. */
static int push_leaf(const struct tree *tree, int leaf, real *sums, int count)
{
    int additions = count_additions(tree, first_leaf(tree, tree->share->rank), leaf, leaf + 1);
    if (additions == 0) {
        memcpy(sums + (Py_ssize_t)DATA_COUNT * count, grad, DATA_COUNT * sizeof(real));
        return count + 1;
    }
    add_reals(sums + (Py_ssize_t)DATA_COUNT * (count - 1), grad, DATA_COUNT);
    for (; --additions > 0; count--)
        add_reals(sums + (Py_ssize_t)DATA_COUNT * (count - 2), sums + (Py_ssize_t)DATA_COUNT * (count - 1), DATA_COUNT);
    return count;
}

/* How many sums of subtrees are there at the same time. */
static int most_sums(const struct tree *tree)
{
    const int first = first_leaf(tree, tree->share->rank), end = first_leaf(tree, tree->share->rank + 1);
    int count = 0, most = 0;
    for (int leaf = first; leaf < end; leaf++) {
        const int additions = count_additions(tree, first, leaf, leaf + 1);
        count += additions == 0 ? 1 : 1 - additions;
        most = count > most ? count : most;
    }
    return most;
}

/* Adds the subtrees of all ranks, of which this rank has its slice: in `received`, round after round. */
static void add_subtrees(const struct tree *tree, real *received)
{
    enum { MAX_DEPTH = 32 };
    const struct share *const share = tree->share;
    const Py_ssize_t count = slice_count(share, share->rank);
    real *sums[MAX_DEPTH + 1];
    int depth = 0;
    for (int rank = 0; rank < share->ranks; rank++) {
        const int end = first_leaf(tree, rank + 1);
        for (int leaf = first_leaf(tree, rank), round = 0, next; leaf < end; leaf = next, round++) {
            Py_ssize_t before = 0; /* subtrees of earlier rounds, and of earlier ranks in this one */
            for (int other = 0; other < share->ranks; other++) {
                const int subtrees = count_subtrees(tree, other);
                before += at_most(subtrees, round) + (other < rank && subtrees > round);
            }
            next = subtree_end(tree, leaf, end);
            sums[depth++] = received + before * count;
            for (int i = count_additions(tree, 0, leaf, next); i > 0; i--, depth--)
                add_reals(sums[depth - 2], sums[depth - 1], count);
        }
    }
    memcpy(grad + slice_start(share, share->rank), sums[0], (size_t)count * sizeof(real));
}

/* Sends this rank's subtrees to the ranks whose slices they are. */
static int call_trade(const struct tree *tree, real *sums, real *received)
{
    const struct share *const share = tree->share;
    Py_ssize_t size = 0;
    for (int rank = 0; rank < share->ranks; rank++)
        size += bytes_to_receive(rank, tree);
    PyObject *const from = view_of(sums, DATA_COUNT * (Py_ssize_t)sizeof(real)), *const to = view_of(received, size);
    PyObject *const to_send = tuple_of_bytes(share, bytes_to_send, tree);
    PyObject *const to_receive = tuple_of_bytes(share, bytes_to_receive, tree);
    PyObject *const result = from == NULL || to == NULL || to_send == NULL || to_receive == NULL
                                 ? NULL
                                 : PyObject_CallMethod(share->exchange, "trade", "OOOO", from, to, to_send, to_receive);
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(to_send);
    Py_XDECREF(to_receive);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int add_tree(const struct training_run *run, Py_ssize_t first, Py_ssize_t size, double *total)
{
    struct share *const share = run->share;
    struct tree tree = {share, (int)((size + LEAF_IMAGES - 1) / LEAF_IMAGES), 0};
    const int own = first_leaf(&tree, share->rank), end = first_leaf(&tree, share->rank + 1), kept = most_sums(&tree);
    const Py_ssize_t losses_bytes = (Py_ssize_t)sizeof(double) * (tree.leaves + share->ranks);
    Py_ssize_t subtrees = 0;
    int rounds = 0;
    for (int rank = 0; rank < share->ranks; rank++) {
        const int count = count_subtrees(&tree, rank);
        subtrees += count;
        rounds = count > rounds ? count : rounds;
    }
    const Py_ssize_t received_count = subtrees * slice_count(share, share->rank);
    const Py_ssize_t numbers = (Py_ssize_t)DATA_COUNT * kept + received_count;
    const int stop = is_to_stop(share);
    if (stop < 0 || take_memory(share, losses_bytes + numbers * (Py_ssize_t)sizeof(real)) < 0)
        return -1;
    double *const losses = (double *)share->bytes, *loss = losses + own + share->rank;
    real *const sums = (real *)(share->bytes + losses_bytes), *received = sums + (Py_ssize_t)DATA_COUNT * kept;
    int count = 0;
    *loss++ = stop;
    for (int leaf = own; leaf < end; leaf++) {
        const Py_ssize_t from = (Py_ssize_t)leaf * LEAF_IMAGES, to = from + LEAF_IMAGES < size ? from + LEAF_IMAGES : size;
        *loss = 0.0;
        begin_step(run, first, leaf == own ? first + from : first);
        if (add_range(run, first + from, first + to, loss++) < 0 || PyErr_CheckSignals() < 0)
            return -1;
        count = push_leaf(&tree, leaf, sums, count);
    }
    if (own == end)
        begin_step(run, first, first + size);
    else if (end < tree.leaves)
        skip_images(run, first + (Py_ssize_t)end * LEAF_IMAGES, first + size);
    if (call_gather(share, losses, losses_bytes, bytes_of_losses, &tree) < 0)
        return -1;
    for (; tree.round < rounds; tree.round++) {
        real *const next = tree.round < count ? sums + (Py_ssize_t)DATA_COUNT * tree.round : sums;
        if (call_trade(&tree, next, received) < 0)
            return -1;
        for (int rank = 0; rank < share->ranks; rank++)
            received += bytes_to_receive(rank, &tree) / (Py_ssize_t)sizeof(real);
    }
    add_subtrees(&tree, received - received_count);
    if (call_gather(share, grad, DATA_COUNT * (Py_ssize_t)sizeof(real), bytes_of_slice, share) < 0)
        return -1;
    for (int rank = 0, leaf = 0; rank < share->ranks; rank++) {
        const double *const of_rank = losses + rank + leaf;
        share->stop |= of_rank[0] != 0;
        for (const int last = first_leaf(&tree, rank + 1), start = leaf; leaf < last; leaf++)
            *total += of_rank[1 + leaf - start];
    }
    end_exchange();
    return 0;
}

#endif
