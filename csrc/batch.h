/*
 * Some images of a batch at once, by a team of threads: forward and adjoints image by image, then the gradients
 * parameter by parameter. Each gradient adds its images in their order, so it has the bits of one image after the other.
 */

/* Forward and adjoints of one image, and what its rows will need. */
static void compute_image(int image)
{
    struct workspace *const w = &block[image];
    block_images.loss[image] = compute_loss(w, block_images.targets[image], block_images.inputs[image]);
    level->compute_adjoints(w);
    if (!ROW_TENSOR_COUNT)
        return;
    block_images.factor[image] = largest_row_factor(w);
    block_images.gradient[image] = block_images.factor[image] * input_bound(w);
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        memcpy(row_factors[image] + row_tensors[t].copy, w->value + row_tensors[t].factor,
               (size_t)row_tensors[t].lanes * sizeof(real));
}

static void compute_images(int member)
{
    for (int first = member * ROW_MASK_IMAGES; first < block_images.count; first += team.size * ROW_MASK_IMAGES) {
        const int rest = block_images.count - first, count = rest < ROW_MASK_IMAGES ? rest : ROW_MASK_IMAGES;
        for (int image = first; image < first + count; image++)
            compute_image(image);
        if (ROW_TENSOR_COUNT)
            level->find_active_rows(active_rows.images[first / ROW_MASK_IMAGES], block_images.inputs + first, count);
    }
}

static void compute_dense_gradients(int member)
{
    level->compute_gradients(block, block_images.count, member, team.size);
}

static void compute_all_gradients(int member)
{
    compute_dense_gradients(member);
    for (int k = 0; k < active_rows.count; k++) {
        const int input = active_rows.list[k];
        if (!owns_row(member, input))
            continue;
        for (int t = 0; t < ROW_TENSOR_COUNT; t++)
            level->add_row(t, grad + row_tensors[t].offset + input * row_tensors[t].row_length, input,
                           images_of_row(input));
    }
}

/*
 * Forward and backward of block_images.count images. Where they are the whole batch, the gradients of row tensors stay
 * pending. Returns the sum of the losses so far.
 */
static double run_block(double total, int is_whole_batch)
{
    settle();
    expect_any_weight();
    if (grad_views)
        touch_all();
    team_run(compute_images);
    training = &block[block_images.count - 1];
    double factor = 0.0; /* the largest of all */
    for (int image = 0; image < block_images.count; image++) {
        total += block_images.loss[image];
        if (factor == factor && !(block_images.factor[image] <= factor)) /* a nan stays */
            factor = block_images.factor[image];
        grad_bound += block_images.gradient[image];
    }
    if (ROW_TENSOR_COUNT && is_finite(factor)) {
        list_active_rows();
        if (is_whole_batch && !touched.count && !touched.all) {
            team_run(compute_dense_gradients);
            pending = block_images.count;
        }
        else {
            for (int k = 0; k < active_rows.count; k++)
                touch(active_rows.list[k]);
            team_run(compute_all_gradients);
        }
        return total;
    }
    team_run(compute_dense_gradients);
    if (ROW_TENSOR_COUNT)
        for (int image = 0; image < block_images.count; image++)
            level->compute_row_gradients(&block[image]);
    return total;
}
