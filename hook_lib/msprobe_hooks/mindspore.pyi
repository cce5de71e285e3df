# The public names for type checkers and editors; an extension that is taken out loses its lines here.
from msprobe_hooks.extensions.mindspore.debugger import MsprobeStep as MsprobeStep
from msprobe_hooks.extensions.mindspore.debugger import PrecisionDebugger as PrecisionDebugger
from msprobe_hooks.extensions.mindspore.debugger import seed_all as seed_all
from msprobe_hooks.extensions.monitor.watch.mindspore_watcher import TrainerMon as TrainerMon
