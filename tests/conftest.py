"""What holds for every test."""

import hypothesis

hypothesis.settings.register_profile("no wall time", deadline=None)
hypothesis.settings.load_profile("no wall time")
