"""Where the clock is read: times of passes, of drafting and of the rest of a step, on this machine."""
