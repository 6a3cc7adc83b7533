from tests.data.conftest import corpus, digit_clips, digits, real_fsdd  # noqa: F401
