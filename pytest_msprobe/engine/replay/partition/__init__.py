"""How large calls are cut into blocks that are computed one by one."""
