"""The end of a program whose process leaves without taking the interpreter down.

It waits for its threads, calls what is registered with ``atexit``, and is gone with the exit status ``status``. Taking
torch down takes longer than most programs, and may abort the process: a group of gloo that something still refers to
after ``destroy_process_group`` (meshes of FSDP, default arguments of modules that torch imports late) keeps its
threads, and one of them that lets go of a tensor while the interpreter ends is "terminate called without an active
exception" (pytorch/pytorch#190489).
"""

LEAVE = """
import atexit, os, sys, threading
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""
