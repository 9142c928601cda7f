"""The paper's experiments, and the training of the model that comes with the package.

sheet_audio  train and evaluate on pairs of sheet music and sound
tables       the paper's results as data
nottingham   its Tables 4 and 5 again, ours beside theirs
folk_tunes   `ccal.pretrained("folk-tunes")` from the old collections
"""
