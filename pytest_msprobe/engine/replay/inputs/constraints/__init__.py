"""What drawn arguments must satisfy beyond their recorded ranges."""
