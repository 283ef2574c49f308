"""The study of DeepSensor's swarms."""
