"""Suites judged by more than faults: diversity, naturalness, impartiality, and comparisons with intervals."""

from __future__ import annotations

from neurotest.callable_module import callable_module
from neurotest.evaluate.bias import class_bias_report as class_bias_report
from neurotest.evaluate.bias import impartiality as impartiality
from neurotest.evaluate.compare import Comparison as Comparison
from neurotest.evaluate.compare import compare as compare
from neurotest.evaluate.features import Extractor as Extractor
from neurotest.evaluate.judge import Judgement as Judgement
from neurotest.evaluate.judge import compare_suites as compare_suites
from neurotest.evaluate.judge import judge as judge
from neurotest.evaluate.metrics import fid as fid
from neurotest.evaluate.metrics import inception_score as inception_score
from neurotest.evaluate.metrics import kid as kid
from neurotest.evaluate.metrics import spread as spread
from neurotest.evaluate.readers import StoredSuite as StoredSuite
from neurotest.evaluate.readers import read_suite as read_suite
from neurotest.evaluate.stored import Evaluation as Evaluation
from neurotest.evaluate.stored import evaluate as evaluate

callable_module(__name__)
