"""A profile: one folder with manifest.json and one .npy file per column, which readers map from disk.

Each program's timeline is stored once (Instruction, Dma, SemaphoreWait, Flow), launches refer to it (Launch); readers
expand. Table and column names follow the Neuron profile schema 7.4.0 where it has them; schema.py lists all.
"""
