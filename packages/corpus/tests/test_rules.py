"""The rules of the native filter: which measure each one reads, and on which side of it the threshold lies."""

import numpy as np
import pytest
from pydantic import ValidationError

from tokenmill_corpus.filters import NativeFilter, apply_rules
from tokenmill_corpus.measures import Measures

OPEN = {"min_words": 0, "max_words": 10**9, "max_duplicate_line_ratio": 1.0}
OPEN |= {"max_duplicate_line_byte_ratio": 1.0, "max_duplicate_paragraph_ratio": 1.0}
"""Settings that drop nothing."""


def measures_of(name: str, values: list[float]) -> Measures:
    """Measures of one document a value, all 0 but the one called `name`."""
    zeros = np.zeros(len(values))
    fields = dict.fromkeys(("duplicate_line_ratio", "duplicate_line_byte_ratio", "duplicate_paragraph_ratio"), zeros)
    fields |= {"num_words": zeros.astype(np.int64)}
    return Measures(**fields | {name: np.array(values)})


@pytest.mark.parametrize(
    ("setting", "threshold", "measure", "values", "kept"),
    [
        ("min_words", 10, "num_words", [0, 9, 10, 11], [False, False, True, True]),
        ("max_words", 10, "num_words", [0, 9, 10, 11], [True, True, True, False]),
        ("max_duplicate_line_ratio", 0.3, "duplicate_line_ratio", [0.0, 0.3, 0.31, 1.0], [True, True, False, False]),
        ("max_duplicate_line_byte_ratio", 0.2, "duplicate_line_byte_ratio", [0.0, 0.2, 0.21], [True, True, False]),
        ("max_duplicate_paragraph_ratio", 0.3, "duplicate_paragraph_ratio", [0.0, 0.3, 0.31], [True, True, False]),
    ],
)
def test_a_threshold_is_inclusive_and_its_setting_is_the_reason(
    setting: str, threshold: float, measure: str, values: list[float], kept: list[bool]
) -> None:
    verdict = NativeFilter.model_validate(OPEN | {setting: threshold}).judge(measures_of(measure, values))
    assert verdict.keep.tolist() == kept
    reasons = [None if index < 0 else verdict.reasons[index] for index in verdict.reason.tolist()]
    assert reasons == [None if keep else setting for keep in kept]


def test_the_first_rule_broken_is_the_reason() -> None:
    broken = {"one": np.array([True, False, False, True]), "two": np.array([True, True, False, False])}
    verdict = apply_rules(broken, 4)
    assert verdict.reason.tolist() == [0, 1, -1, 0]
    assert verdict.keep.tolist() == [False, False, True, False]
    assert verdict.reasons == ("one", "two")


def test_no_rules_keep_everything() -> None:
    assert apply_rules({}, 3).keep.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("setting", "value"),
    [("min_words", -1), ("max_words", 0), ("max_duplicate_line_ratio", 1.1), ("max_duplicate_paragraph_ratio", -0.1)],
)
def test_a_threshold_out_of_range_is_refused_by_its_name(setting: str, value: float) -> None:
    with pytest.raises(ValidationError, match=setting):
        NativeFilter.model_validate({setting: value})
