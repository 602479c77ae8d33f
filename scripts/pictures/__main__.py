from scripts.pictures import FOLDER, PICTURES, write

write()
print(f"{len(PICTURES)} pictures in {FOLDER}")
