"""The verdict on one compared call, and which differences explain others."""
