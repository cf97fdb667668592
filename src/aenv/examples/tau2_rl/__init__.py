"""An agent that serves customers of tau2 and is rewarded for it: the entry point of trainers such as AReaL.

python -m aenv.examples.tau2_rl           # a scripted model, offline; data of its own where there is none
"""
