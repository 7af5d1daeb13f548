"""What people have: a training's files, a model's config.json, an error, read as a question to the planner.

`flops-bytes FILE …` comes here. A file is known by what it holds (content.py), whatever its name; its text becomes keys
and values (parse.py). A software is one data file, NAME.toml: key by key the option of `flops-bytes plan` that says the
same. interpret.py reads all of them by a few named rules, and drops nothing without a word; software.py loads them.
Messages of memory that ran out are read by out_of_memory.py. command.py prints what was read and what is planned, and
hands a snapshot, a trace and a script to the commands that are theirs.

This room asks the planner, and no other room asks it. Files are hostile: none of their code runs, their sizes, depths
and aliases are bounded, and what is wrong with one is a ValueError that names it, its line and the mend.
"""
