from scripts.grammar.draw import FOLDER, write

print(f"{write()} pictures of the grammar in {FOLDER}")
