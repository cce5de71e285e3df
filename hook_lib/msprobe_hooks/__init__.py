"""The dump as data: names, records and files, as recorded by msprobe and by this project."""
