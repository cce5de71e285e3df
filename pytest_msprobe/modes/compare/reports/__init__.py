"""What a comparison leaves behind: tables in msprobe's columns, and a page to look at."""
