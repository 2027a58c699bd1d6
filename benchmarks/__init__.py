"""
ninelives beside the saver that everybody has: `langgraph-checkpoint-sqlite`, in the same run, on the same disk.

`make bench` plans and runs the measurements (`__main__`), each in a process of its own (`measure`), judges them by the
goals (`goals`) and keeps the figures as JSON in `results/`, from which `report` writes `docs/benchmarks.md`.

What must hold: both sides do the same acts on the same text, with every commit synced; what is compared was measured
in turns (stock, ours, stock, ours, …); nothing is extrapolated.
"""
