/* The inputs of one image into a workspace, and a list of those that are active. */

static void AT_LEVEL(set_inputs)(struct workspace *w, const input_type *inputs)
{
    if (READS_INPUTS)
        for (int i = 0; i < INPUT_COUNT; i++)
            w->value[INPUT + i] = input_value(inputs, i);
    STORED;
    if (ROW_TENSOR_COUNT)
        w->active_count = AT_LEVEL(find_active)(w, inputs);
}
