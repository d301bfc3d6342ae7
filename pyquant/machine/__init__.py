"""What a process runs on: the CPU, memory, versions, and the folder of caches."""
