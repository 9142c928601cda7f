"""The paper's experiments, the training of the bundled model, and the demonstrations.

paper_tables         the paper's tables as data: published figures, settings, budgets
paper_data           their data sets, read and split
cells                one method and seed of a table: trained, measured, kept
reproduction         `ccal reproduce`: all cells of a table, side by side, with a grid
reproduction_report  a table as text, Markdown, JSON and HTML
sheet_audio          the paper's networks for sheet music and sound: training and evaluation
folk_tunes           the training of `ccal.pretrained("folk-tunes")` on two old collections
folk_tunes_demo      `ccal demo`: sheet music and sound of folk tunes find each other
digits               `ccal demo --digits`: left halves of digits find their right halves
"""
