"""The Text-to-SQL application: data set, accuracy and the simulated engine's answers."""
