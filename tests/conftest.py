"""For all tests: hypothesis measures no time, and what the imports made is no garbage to look for."""

import gc

from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # time says more about the machine than about the code
settings.load_profile("untimed")

# torch, verl and vLLM make a million objects that stay, and every test would pay for looking through them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
