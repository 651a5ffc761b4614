# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Leaves one of a window's captured calls out.
import sys

driver = sys.modules["cuda_driver"]


class Chain(driver.Chain):
    def __init__(self, graphs):
        super().__init__(graphs[:5] + graphs[6:])


driver.Chain = Chain
