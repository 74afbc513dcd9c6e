/* For calls that change the model. */

/* Fails inside the `progress` of a long call of this very thread, and where wait_for_long_calls() does. */
static int lock_to_write(void)
{
    lock_to_read();
    while (long_running) {
        const int mine = long_thread == PyThread_get_thread_ident();
        unlock();
        if (mine) {
            PyErr_SetString(PyExc_RuntimeError, "the model cannot be changed from inside a progress callback");
            return -1;
        }
        if (wait_for_long_calls() < 0)
            return -1;
        PyThread_release_lock(long_lock);
        lock_to_read();
    }
    return 0;
}
