"""The checker of Stable-Baselines3 on one environment whose codec gives numbers."""

from stable_baselines3.common.env_checker import check_env

from aenv.examples.trainers.line_cells import Cells
from aenv.integrations.gymnasium import AenvGym

single = AenvGym("line@1.0.0", codec=Cells(), in_place=True)
check_env(single)
single.close()
