"""What each mechanism learns: its drafts, teacher-forced by the same unroll that replay uses, and their loss."""
