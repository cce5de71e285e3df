"""Each call run several times on the device: one that differs from itself is wrong, whatever it is compared with."""
