# The public names for type checkers and editors; an extension that is taken out loses its lines here.
from pytest_msprobe.extensions.explore.hypothesis_tensors import tensors as tensors
from pytest_msprobe.extensions.live_checks.live_fixture import TestLive as TestLive
from pytest_msprobe.extensions.live_checks.ptdbg_dispatch import PtdbgDispatch as PtdbgDispatch
from pytest_msprobe.extensions.live_checks.session import LiveChecks as LiveChecks
from pytest_msprobe.extensions.live_checks.session import live as live
from pytest_msprobe.extensions.monitor.monitor_fixture import TrainingMonitor as TrainingMonitor
from pytest_msprobe.fixtures.precision import Precision as Precision
from pytest_msprobe.fixtures.precision import precision_standard as precision_standard
from pytest_msprobe.fixtures.recording import TestDump as TestDump
from pytest_msprobe.python_api.check_dump import CheckedRecord as CheckedRecord
from pytest_msprobe.python_api.check_dump import check_call as check_call
from pytest_msprobe.python_api.check_dump import check_dump as check_dump
from pytest_msprobe.python_api.compare_dumps import ComparedRecord as ComparedRecord
from pytest_msprobe.python_api.compare_dumps import compare_dumps as compare_dumps
from pytest_msprobe.results.result import CallResult as CallResult
