"""The paper's experiments, the training of the bundled model, and the demonstrations.

sheet_audio       the paper's networks for sheet music and sound: training and evaluation
nottingham        its Tables 4 and 5 as data, and the recipe that repeats them
folk_tunes        the training of `ccal.pretrained("folk-tunes")` on two old collections
folk_tunes_demo   `ccal demo`: sheet music and sound of folk tunes find each other
digits            `ccal demo --digits`: left halves of digits find their right halves
"""
